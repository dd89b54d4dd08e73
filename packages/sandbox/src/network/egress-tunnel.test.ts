import { once } from 'node:events'
import http from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import tls from 'node:tls'
import { expect, onTestFinished, test, vi } from 'vitest'
import {
  certificate,
  dial,
  listen,
  openConnect,
  PUBLIC,
  sendRaw,
  startTestProxy,
  type TestProxy,
} from '../testing/egress-fixture.ts'

const NAMES = { 'site.test': [[PUBLIC]], 'www.site.test': [[PUBLIC]] }

/** A TLS server that says hello and then repeats what it hears. */
async function startSecureSite() {
  const site = tls.createServer(certificate(), (socket) => {
    socket.on('error', () => {})
    socket.write('hello')
    socket.pipe(socket)
  })
  site.on('tlsClientError', () => {})
  return listen(site)
}

/** A tunnel to port 443 of whatever was asked for, which is really `port` on this machine. */
async function startProxy(network: 'open' | string[], port: number, limits = {}): Promise<TestProxy> {
  const connected = () => connect({ host: '127.0.0.1', port, allowHalfOpen: true })
  return startTestProxy(network, { names: NAMES, connect: connected, limits })
}

/** Speaks TLS through a tunnel; resolves with the first bytes, rejects if there are none. */
async function speak(socket: Socket, servername?: string): Promise<string> {
  const secure = tls.connect({ socket, rejectUnauthorized: false, ...(servername && { servername }) })
  onTestFinished(() => void secure.destroy())
  const [chunk] = (await once(secure, 'data')) as [Buffer]
  return chunk.toString()
}

test.each([
  ['its own name', ['site.test'], 'site.test', 'site.test'],
  ['its own name in capitals', ['site.test'], 'SITE.TEST', 'Site.Test'],
  ['a name below a wildcard', ['*.site.test'], 'www.site.test', 'www.site.test'],
  ['no name, for an address', ['127.0.0.1'], '127.0.0.1', undefined],
])('TLS with %s passes', async (_, network, host, name) => {
  const proxy = await startProxy(network, await startSecureSite())
  const { head, socket } = await openConnect(proxy, `${host}:443`)
  expect(head).toMatch(/^HTTP\/1.1 200/)
  expect(await speak(socket, name)).toBe('hello')
  expect(proxy.denied).toEqual([])
})

test.each([
  ['another name', ['site.test'], 'site.test', 'evil.test'],
  ['another name below the same wildcard', ['*.site.test'], 'www.site.test', 'api.site.test'],
  ['no name', ['site.test'], 'site.test', undefined],
  ['a name, for an address', ['127.0.0.1'], '127.0.0.1', 'evil.test'],
  ['another name on a port that is named', ['site.test:443'], 'site.test', 'evil.test'],
])('TLS with %s is cut off and told', async (_, network, host, name) => {
  const heard: Buffer[] = []
  const port = await listen(createServer((socket) => void socket.on('data', (chunk) => heard.push(chunk))))
  const proxy = await startProxy(network, port)
  const { socket } = await openConnect(proxy, `${host}:443`)
  await expect(speak(socket, name)).rejects.toThrow(/access denied/)
  expect(proxy.denied).toMatchObject([
    { host, port: 443, reason: expect.stringContaining('TLS server name') },
  ])
  expect(heard).toEqual([])
})

test('bytes that come with CONNECT are not lost', async () => {
  const port = await listen(createServer((socket) => void socket.pipe(socket)))
  const proxy = await startProxy(['site.test:443'], port)
  const client = dial(proxy)
  client.end('CONNECT site.test:443 HTTP/1.1\r\n\r\nSSH-2.0-client')
  expect(await text(client)).toMatch(/\r\n\r\nSSH-2.0-client$/)
})

test.each(['SSH-2.0-client\r\n', 'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n', '\x16\x03\x01'])(
  'in a tunnel on a port that is not named, %j is not TLS and goes nowhere',
  async (bytes) => {
    const heard: Buffer[] = []
    const port = await listen(createServer((socket) => void socket.on('data', (chunk) => heard.push(chunk))))
    const proxy = await startProxy(['site.test'], port)
    const { socket } = await openConnect(proxy, 'site.test:443')
    socket.end(bytes)
    expect(await text(socket)).toBe('')
    expect(proxy.denied).toMatchObject([{ host: 'site.test', setting: 'network: ["site.test:443"]' }])
    expect(heard).toEqual([])
  },
)

test.each([['site.test:22'], ['*.test:22'], ['open']])(
  'under %s any protocol passes, and the server may speak first',
  async (entry) => {
    const port = await listen(
      createServer({ allowHalfOpen: true }, (socket) => {
        socket.write('SSH-2.0-server')
        void text(socket).then((heard) => socket.end(`heard ${heard}`))
      }),
    )
    const proxy = await startProxy(entry === 'open' ? entry : [entry], port)
    const { head, socket } = await openConnect(proxy, 'site.test:22')
    const [greeting] = head.endsWith('server') ? ['SSH-2.0-server'] : await once(socket.resume(), 'data')
    expect(String(greeting)).toBe('SSH-2.0-server')
    socket.end('all of it') // Half closed: the answer still comes.
    expect(await text(socket)).toBe('heard all of it')
  },
)

test('a client that sends its ClientHello in crumbs is served, one that never ends it is dropped', async () => {
  const proxy = await startProxy(['site.test'], await startSecureSite(), { headTimeoutMs: 300 })
  const { socket } = await openConnect(proxy, 'site.test:443')
  const write = socket.write.bind(socket)
  let isFirst = true
  socket.write = ((chunk: Buffer, ...rest: []) => {
    if (!isFirst) return write(chunk, ...rest)
    isFirst = false
    for (const byte of chunk.subarray(0, 50)) write(Buffer.of(byte))
    return write(chunk.subarray(50), ...rest)
  }) as typeof socket.write
  expect(await speak(socket, 'site.test')).toBe('hello')

  const { socket: slow } = await openConnect(proxy, 'site.test:443')
  slow.write(Buffer.from([22, 3, 1, 1, 0, 1]))
  expect(await text(slow).catch(() => '')).toBe('')
})

test('a ClientHello of more than it can be is not waited for', async () => {
  const proxy = await startProxy(['site.test'], await startSecureSite())
  const { socket } = await openConnect(proxy, 'site.test:443')
  socket.write(Buffer.concat([Buffer.from([22, 3, 1, 255, 255, 1, 0, 255, 255]), Buffer.alloc(17_000)]))
  expect(await text(socket).catch(() => '')).toBe('')
})

test('a tunnel on which nothing happens is closed', async () => {
  const port = await listen(createServer(() => {}))
  const proxy = await startProxy(['site.test:7'], port, { idleTimeoutMs: 100 })
  const { socket } = await openConnect(proxy, 'site.test:7')
  expect(await text(socket).catch(() => '')).toBe('')
})

test('on port 80 a tunnel is HTTP to that host, each request checked as any other', async () => {
  const seen: string[] = []
  const port = await listen(
    http.createServer((request, response) => {
      seen.push(`${request.headers.host}${request.url}`)
      response.end('ok')
    }),
  )
  const proxy = await startProxy(['site.test'], port)
  const { socket } = await openConnect(proxy, 'site.test:80')
  socket.write('GET /one HTTP/1.1\r\nHost: site.test\r\n\r\n')
  const [first] = await once(socket.resume(), 'data')
  expect(String(first)).toMatch(/^HTTP\/1.1 200/)
  socket.write('GET /two HTTP/1.1\r\nHost: evil.test\r\n\r\n')
  const [second] = await once(socket, 'data')
  expect(String(second)).toMatch(/^HTTP\/1.1 400/)
  proxy.setPolicy({ mode: 'none' })
  socket.write('GET /three HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n')
  const [third] = await once(socket, 'data')
  expect(String(third)).toMatch(/^HTTP\/1.1 403/)
  expect(seen).toEqual(['site.test/one'])
})

test('a tunnel on port 80 carries nothing but HTTP', async () => {
  const proxy = await startProxy(['site.test'], 1)
  const { socket } = await openConnect(proxy, 'site.test:80')
  socket.write('SSH-2.0-client\r\n')
  expect(await text(socket)).toMatch(/^HTTP\/1.1 400/)
  expect(proxy.counters().connections).toBe(0)
})

test('there is no tunnel in a tunnel', async () => {
  const proxy = await startProxy(['site.test'], 1)
  const { socket } = await openConnect(proxy, 'site.test:80')
  socket.write('CONNECT site.test:80 HTTP/1.1\r\n\r\n')
  expect(await text(socket)).toMatch(/^HTTP\/1.1 400/)
})

test('a tunnel asked for while a request is under way leaves nothing of that when the client goes', async () => {
  const accepted: Socket[] = []
  const port = await listen(createServer((socket) => void accepted.push(socket)))
  const proxy = await startProxy(['site.test'], port)
  const client = dial(proxy)
  client.write('GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n')
  await vi.waitFor(() => expect(accepted).toHaveLength(1))
  client.write('CONNECT site.test:443 HTTP/1.1\r\n\r\n')
  await vi.waitFor(() => expect(accepted).toHaveLength(2))
  const gone = accepted.map((socket) => once(socket.resume(), 'close'))
  client.destroy()
  await Promise.all(gone)
})

test('the metadata service is no tunnel’s end, however it is spelt', async () => {
  const proxy = await startTestProxy('open', { names: { 'metadata.test': [['169.254.169.254']] } })
  for (const host of [
    '169.254.169.254',
    '0xa9fea9fe',
    '[::ffff:169.254.169.254]',
    '[fd00:ec2::254]',
    'metadata.test',
  ])
    expect(await sendRaw(proxy, `CONNECT ${host}:80 HTTP/1.1\r\n\r\n`)).toMatch(/^HTTP\/1.1 403/)
})

test('a change of policy drops the tunnels it no longer allows, and only those', async () => {
  const port = await startSecureSite()
  const proxy = await startProxy(['*.site.test', 'site.test:443'], port)
  const open = async (host: string) => {
    const { socket } = await openConnect(proxy, `${host}:443`)
    const secure = tls.connect({ socket, rejectUnauthorized: false, servername: host })
    await once(secure, 'data')
    return secure
  }
  const [kept, dropped] = [await open('www.site.test'), await open('site.test')]
  const { socket: silent } = await openConnect(proxy, 'site.test:443')
  proxy.setPolicy({ mode: 'allowlist', hosts: ['*.site.test'] })
  const gone = [
    once(
      dropped.on('error', () => {}),
      'close',
    ),
    text(silent).catch(() => ''),
  ]
  proxy.policyChanged()
  await Promise.all(gone)
  kept.write('still here')
  expect(String(await once(kept, 'data'))).toBe('still here')
  expect(proxy.denied).toMatchObject([{ host: 'site.test' }])
  proxy.setPolicy({ mode: 'none' })
  proxy.policyChanged()
  await once(
    kept.on('error', () => {}),
    'close',
  )
})

test('bytes are counted both ways, while they flow and after', async () => {
  const port = await listen(createServer((socket) => void socket.pipe(socket)))
  const proxy = await startProxy(['site.test:7'], port)
  const { socket } = await openConnect(proxy, 'site.test:7')
  let received = 0
  socket.resume().on('data', (chunk: Buffer) => {
    received += chunk.length
  })
  socket.write(Buffer.alloc(1_000_000, 'x'))
  await vi.waitFor(() => expect(received).toBe(1_000_000))
  const expected = { sentBytes: 1_000_000, receivedBytes: 1_000_000, connections: 1, denied: 0 }
  expect(proxy.counters()).toEqual(expected)
  socket.end()
  await once(socket, 'end')
  await new Promise(setImmediate)
  expect(proxy.counters()).toEqual(expected)
})

test('a reader that stops holds the sender back instead of filling memory', async () => {
  let sent = 0
  const port = await listen(
    createServer((socket) => {
      const fill = () => {
        while (sent < 512 * 1024 * 1024 && !socket.destroyed) {
          sent += 65_536
          if (!socket.write(Buffer.alloc(65_536))) return
        }
      }
      socket.on('drain', fill)
      fill()
    }),
  )
  const proxy = await startProxy(['site.test:7'], port)
  await openConnect(proxy, 'site.test:7')
  let before = -1
  await vi.waitFor(
    () => {
      const isStill = sent === before
      before = sent
      expect(isStill).toBe(true)
    },
    { interval: 100 },
  )
  expect(sent).toBeLessThan(32 * 1024 * 1024)
})

test('either end that breaks off takes the other with it', async () => {
  const accepted: Socket[] = []
  const port = await listen(createServer((socket) => void accepted.push(socket.on('error', () => {}))))
  const proxy = await startProxy(['site.test:7'], port)
  const one = await openConnect(proxy, 'site.test:7')
  await vi.waitFor(() => expect(accepted).toHaveLength(1))
  const gone = once(accepted[0]?.resume() as Socket, 'close')
  one.socket.destroy()
  await gone
  const two = await openConnect(proxy, 'site.test:7')
  two.socket.write('x')
  await vi.waitFor(() => expect(accepted).toHaveLength(2))
  accepted[1]?.resetAndDestroy()
  expect(await text(two.socket).catch(() => '')).toBe('')
})

test('a sandbox has no more tunnels than its limit', async () => {
  const port = await listen(createServer(() => {}))
  const proxy = await startProxy(['site.test:7'], port, { maxConnections: 3 })
  for (let i = 0; i < 3; i++) expect((await openConnect(proxy, 'site.test:7')).head).toMatch(/ 200 /)
  expect(await sendRaw(proxy, 'CONNECT site.test:7 HTTP/1.1\r\n\r\n')).toBe('')
})

test('nor can it have two where it may have one, by asking for a tunnel while a request is under way', async () => {
  const accepted: Socket[] = []
  const port = await listen(createServer((socket) => void accepted.push(socket)))
  const proxy = await startProxy(['site.test'], port, { maxConnections: 1 })
  const client = dial(proxy)
  client.write('GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n')
  await vi.waitFor(() => expect(accepted).toHaveLength(1))
  client.write('CONNECT site.test:443 HTTP/1.1\r\n\r\n')
  expect(await text(client)).toMatch(/^HTTP\/1.1 503/)
})

test('a client that goes away while its name is looked up is not connected', async () => {
  const asked = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<string[]>()
  const resolve = () => {
    asked.resolve()
    return answer.promise
  }
  const proxy = await startTestProxy('open', { resolve })
  const client = dial(proxy)
  client.write('CONNECT site.test:443 HTTP/1.1\r\n\r\n')
  await asked.promise
  await proxy.close()
  answer.resolve(['127.0.0.1'])
  await new Promise(setImmediate)
  expect(proxy).toMatchObject({ dialled: [], denied: [] })
})
