import { once } from 'node:events'
import { existsSync } from 'node:fs'
import http from 'node:http'
import { connect, createServer, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test, vi } from 'vitest'
import { ask, dial, listen, openConnect, PUBLIC, sendRaw, startTestProxy } from '../testing/egress-fixture.ts'

/** A site that tells what it was asked. */
async function startSite(handler?: http.RequestListener) {
  const seen: { method?: string; url?: string; headers: string[]; body: string }[] = []
  const site = http.createServer(async (request, response) => {
    const { method, url, rawHeaders } = request
    const entry = { method: method ?? '', url: url ?? '', headers: rawHeaders, body: '' }
    seen.push(entry)
    if (handler) return handler(request, response)
    entry.body = await text(request)
    response.end(`hello from ${request.headers.host}${url}`)
  })
  return { port: await listen(site), seen }
}

test('a request to an allowed host is carried out in origin form, without what is meant for the proxy', async () => {
  const { port, seen } = await startSite()
  const proxy = await startTestProxy([`site.test:${port}`], { names: { 'site.test': [[PUBLIC]] } })
  const reply = await ask(proxy, `http://site.test:${port}/a/../b?c=d`, {
    headers: {
      'proxy-authorization': 'Basic abc',
      'proxy-connection': 'keep-alive',
      connection: 'keep-alive, x-hop',
      'x-hop': '1',
      te: 'trailers',
      upgrade: 'websocket',
      'x-kept': ['1', '2'],
    },
  })
  expect(reply).toMatchObject({ status: 200, body: `hello from site.test:${port}/a/../b?c=d` })
  const names = seen[0]?.headers.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase())
  expect(names?.toSorted()).toEqual(['connection', 'host', 'x-kept', 'x-kept'])
  expect(proxy.dialled).toEqual([[PUBLIC]])
})

test('the default port is 80, and the Host header says so by leaving it out', async () => {
  const seen: number[] = []
  const { port } = await startSite()
  const proxy = await startTestProxy(['site.test'], {
    names: { 'site.test': [[PUBLIC]] },
    connect: (_, asked) => {
      seen.push(asked)
      return connect(port, '127.0.0.1')
    },
  })
  expect((await ask(proxy, 'http://site.test')).body).toBe('hello from site.test/')
  expect((await ask(proxy, 'http://SITE.test.:80/?q', { headers: { host: 'site.test' } })).body).toBe(
    'hello from site.test/?q',
  )
  expect(seen).toEqual([80, 80])
})

test.each([
  ['with a length', { 'content-length': '5' }],
  ['in chunks', { 'transfer-encoding': 'chunked' }],
])('a body %s arrives whole and framed once', async (_, headers) => {
  const { port, seen } = await startSite()
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  await ask(proxy, `http://127.0.0.1:${port}/`, { method: 'POST', headers, body: 'hello' })
  expect(seen[0]?.body).toBe('hello')
  const framing = seen[0]?.headers.filter((name) => /^(content-length|transfer-encoding)$/i.test(name))
  expect(framing).toHaveLength(1)
})

test('a client’s connection is kept for its next request, whatever host that is for', async () => {
  const one = await startSite()
  const two = await startSite()
  const proxy = await startTestProxy([`127.0.0.1:${one.port}`, `127.0.0.1:${two.port}`])
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
  onTestFinished(() => agent.destroy())
  for (const port of [one.port, two.port, one.port])
    expect((await ask(proxy, `http://127.0.0.1:${port}/`, { agent })).status).toBe(200)
  expect(
    (await ask(proxy, 'http://denied.test/', { agent, method: 'POST', body: 'x'.repeat(99_999) })).status,
  ).toBe(403)
  expect((await ask(proxy, `http://127.0.0.1:${two.port}/`, { agent })).status).toBe(200)
  expect(Object.values(agent.freeSockets).flat()).toHaveLength(1)
})

test('a denial says what was denied and which setting allows it, to the client and as an event', async () => {
  const proxy = await startTestProxy(['other.test'])
  const reply = await ask(proxy, 'http://api.test:8080/')
  expect(reply.status).toBe(403)
  expect(reply.body).toMatch(/api\.test on port 8080.*\n.*network: \["api\.test:8080"\]/)
  expect(await sendRaw(proxy, 'CONNECT api.test:443 HTTP/1.1\r\n\r\n')).toMatch(
    /^HTTP\/1\.1 403 .*network: \["api\.test"\]\r\n[\s\S]*api\.test on port 443/,
  )
  const event = { host: 'api.test', reason: 'no entry of the network policy allows it', count: 1 }
  expect(proxy.denied).toEqual([
    { ...event, port: 8080, setting: 'network: ["api.test:8080"]' },
    { ...event, port: 443, setting: 'network: ["api.test"]' },
  ])
  expect(proxy.lookups).toEqual([]) // DNS is no way out either.
})

test.each(['http://site.test/', 'http://127.0.0.1/', 'http://1.1.1.1/'])(
  'under none, %s is denied',
  async (url) => {
    const proxy = await startTestProxy('none')
    expect((await ask(proxy, url)).status).toBe(403)
    expect(proxy.dialled).toEqual([])
  },
)

test.each([
  ['a loopback address', '127.0.0.1'],
  ['IPv6 loopback', '[::1]'],
  ['hexadecimal', '0x7f.1'],
  ['octal', '0177.0.0.1'],
  ['one number', '2130706433'],
  ['a short address', '127.1'],
  ['the unspecified address', '0.0.0.0'],
  ['a mapped address', '[::ffff:127.0.0.1]'],
  ['the metadata service', '169.254.169.254'],
  ['the metadata service as a number', '2852039166'],
  ['a private address', '10.0.0.1'],
  ['localhost', 'localhost'],
  ['localhost with a dot', 'LOCALHOST.'],
  ['a name below localhost', 'x.localhost'],
  ['a public name with a private address', 'intern.test'],
  ['a name with a public and a private address', 'mixed.test'],
])('under open, %s is denied to requests and tunnels', async (_, host) => {
  const names = {
    localhost: [['127.0.0.1']],
    'x.localhost': [['::1']],
    'intern.test': [['192.168.0.7']],
    'mixed.test': [[PUBLIC, '10.0.0.1']],
  }
  const proxy = await startTestProxy('open', { names })
  expect(
    await sendRaw(proxy, `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`),
  ).toMatch(/^HTTP\/1.1 403/)
  expect(await sendRaw(proxy, `CONNECT ${host}:443 HTTP/1.1\r\n\r\n`)).toMatch(/^HTTP\/1.1 403/)
  expect(proxy.denied.map(({ port }) => port)).toEqual([80, 443])
  expect(proxy.dialled).toEqual([])
})

test('a wildcard does not name a private address, its exact name does', async () => {
  const { port } = await startSite()
  const names = { 'db.corp.test': [['10.1.2.3']] }
  const url = `http://db.corp.test:${port}/`
  const byWildcard = await startTestProxy([`*.corp.test:${port}`], { names })
  expect((await ask(byWildcard, url)).status).toBe(403)
  expect(byWildcard.denied[0]?.setting).toBe(`network: ["db.corp.test:${port}"]`)
  const byName = await startTestProxy([`db.corp.test:${port}`], { names })
  expect((await ask(byName, url)).status).toBe(200)
})

test('a name is looked up once, and exactly what was checked is connected to', async () => {
  const { port } = await startSite()
  const names = { 'rebind.test': [[PUBLIC], ['127.0.0.1']] }
  const proxy = await startTestProxy('open', { names })
  const url = `http://rebind.test:${port}/`
  expect((await ask(proxy, url)).status).toBe(200)
  expect(proxy.lookups).toEqual(['rebind.test'])
  expect(proxy.dialled).toEqual([[PUBLIC]])
  expect((await ask(proxy, url)).status).toBe(403)
  expect(proxy.dialled).toHaveLength(1)
})

test('a redirect is passed on, and following it is a request like any other', async () => {
  const { port } = await startSite((_, response) => {
    response.writeHead(302, { location: 'http://169.254.169.254/latest/meta-data/' }).end()
  })
  const proxy = await startTestProxy([`site.test:${port}`], { names: { 'site.test': [[PUBLIC]] } })
  const { status, headers } = await ask(proxy, `http://site.test:${port}/`)
  expect(status).toBe(302)
  expect((await ask(proxy, String(headers.location))).status).toBe(403)
})

const REQUEST = 'GET http://site.test/ HTTP/1.1\r\n'
test.each([
  ['a Host header for another host', `${REQUEST}Host: evil.test\r\n\r\n`],
  ['a Host header for another port', `${REQUEST}Host: site.test:81\r\n\r\n`],
  ['two Host headers', `${REQUEST}Host: site.test\r\nHost: evil.test\r\n\r\n`],
  ['the same Host header twice', `${REQUEST}Host: site.test\r\nHost: site.test\r\n\r\n`],
  ['no Host header', `${REQUEST}\r\n`],
  ['a Host header with a path', `${REQUEST}Host: site.test/evil.test\r\n\r\n`],
  ['a user in the URL', 'GET http://site.test@evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n'],
  ['a user and password', 'GET http://a:b@site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n'],
  ['a backslash in the host', 'GET http://site.test\\@evil.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n'],
  ['a fragment', 'GET http://site.test#@evil.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n'],
  ['an https URL', 'GET https://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n'],
  ['another scheme', 'GET ftp://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n'],
  ['a path alone', 'GET / HTTP/1.1\r\nHost: site.test\r\n\r\n'],
  ['an asterisk', 'OPTIONS * HTTP/1.1\r\nHost: site.test\r\n\r\n'],
  ['CONNECT without a port', 'CONNECT site.test HTTP/1.1\r\n\r\n'],
  ['CONNECT to a URL', 'CONNECT http://site.test/ HTTP/1.1\r\n\r\n'],
  ['CONNECT with a user', 'CONNECT a@site.test:443 HTTP/1.1\r\n\r\n'],
  [
    'a length and chunks',
    `${REQUEST}Host: site.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
  ],
  ['two lengths', `${REQUEST}Host: site.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhello`],
  ['a length with a sign', `${REQUEST}Host: site.test\r\nContent-Length: +4\r\n\r\nhell`],
  ['a space before the colon', `${REQUEST}Host: site.test\r\nTransfer-Encoding : chunked\r\n\r\n`],
  ['a bare carriage return', `${REQUEST}Host: site.test\r\nX: a\rb\r\n\r\n`],
  ['a bare line feed', `${REQUEST}Host: site.test\nX: a\r\n\r\n`],
  ['a NUL', `${REQUEST}Host: site.test\r\nX: a\0b\r\n\r\n`],
  ['not HTTP at all', '\x16\x03\x01 what\r\n\r\n'],
])('%s is 400', async (_, bytes) => {
  const proxy = await startTestProxy('open', { names: { 'site.test': [[PUBLIC]], 'evil.test': [[PUBLIC]] } })
  expect(await sendRaw(proxy, bytes.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'))).toMatch(
    /^HTTP\/1.1 400/,
  )
  expect(proxy.dialled).toEqual([])
})

test('an encoding that would not be decoded the same everywhere is 501', async () => {
  const proxy = await startTestProxy('open')
  const head = `${REQUEST}Host: site.test\r\nConnection: close\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`
  expect(await sendRaw(proxy, head)).toMatch(/^HTTP\/1.1 501/)
})

test('a folded header cannot hide another', async () => {
  const { port, seen } = await startSite()
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  const head = `GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n`
  const reply = await sendRaw(proxy, `${head}X: a\r\n Transfer-Encoding: chunked\r\n\r\n`)
  if (reply.startsWith('HTTP/1.1 200'))
    expect(seen[0]?.headers.join('\n')).not.toMatch(/^transfer-encoding$/im)
  else expect(reply).toMatch(/^HTTP\/1.1 400/)
})

test('the Connection header cannot take away what ends the body', async () => {
  const { port, seen } = await startSite()
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  const body = 'GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n'
  const reply = await sendRaw(
    proxy,
    `POST http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n` +
      `Connection: close, content-length, host\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  )
  expect(reply).toMatch(/^HTTP\/1.1 200/)
  expect(seen).toMatchObject([{ url: '/', body }])
})

test('a request that does not wait for the answer to the one before is not served', async () => {
  const { port, seen } = await startSite((_, response) => void setTimeout(() => response.end(), 50))
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  const request = `GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`
  expect(await sendRaw(proxy, request + request)).not.toMatch(/200[\s\S]*200/)
  expect(seen.length).toBeLessThan(2)
})

test('a head that is too large is 431', async () => {
  const proxy = await startTestProxy('open')
  expect(await sendRaw(proxy, `${REQUEST}Host: site.test\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`)).toMatch(
    /^HTTP\/1.1 431/,
  )
})

test('a host that cannot be resolved or reached is 502', async () => {
  const proxy = await startTestProxy('open', {
    resolve: async (host) => {
      if (host === 'gone.test') throw Object.assign(new Error(), { code: 'ENOTFOUND' })
      return host === 'empty.test' ? [] : [PUBLIC]
    },
    connect: () => connect(1, '127.0.0.1'),
  })
  for (const [host, why] of [
    ['gone.test', 'ENOTFOUND'],
    ['empty.test', 'no address'],
    ['closed.test', 'ECONNREFUSED'],
  ]) {
    expect(await ask(proxy, `http://${host}/`)).toMatchObject({
      status: 502,
      body: expect.stringContaining(`${why}`),
    })
    expect(await sendRaw(proxy, `CONNECT ${host}:443 HTTP/1.1\r\n\r\n`)).toMatch(/^HTTP\/1.1 502/)
  }
  expect(proxy.denied).toEqual([])
})

test('a host that does not answer is given up', async () => {
  const proxy = await startTestProxy('open', {
    names: { 'slow.test': [[PUBLIC]] },
    connect: () => new Socket(), // Never connects.
    limits: { connectTimeoutMs: 50 },
  })
  expect(await ask(proxy, 'http://slow.test/')).toMatchObject({
    status: 502,
    body: expect.stringContaining('timeout'),
  })
})

test.each([
  ['closes at once', (socket: Socket) => socket.end()],
  ['answers nonsense', (socket: Socket) => socket.end('nonsense\r\n\r\n')],
  [
    'changes the protocol',
    (socket: Socket) =>
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'),
  ],
  ['sends a status that is none', (socket: Socket) => socket.end('HTTP/1.1 001 x\r\n\r\n')],
  [
    'sends two framings',
    (socket: Socket) =>
      socket.end('HTTP/1.1 200 x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'),
  ],
])('a site that %s is 502', async (_, behave) => {
  const port = await listen(createServer((socket) => void socket.once('data', () => behave(socket))))
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  expect((await ask(proxy, `http://127.0.0.1:${port}/`)).status).toBe(502)
})

test('a site that breaks off breaks the connection', async () => {
  const { port } = await startSite((_, response) => {
    response.writeHead(200, { 'content-length': '100' }).write('half')
    setImmediate(() => response.destroy())
  })
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  await expect(ask(proxy, `http://127.0.0.1:${port}/`)).rejects.toThrow(/aborted/)
})

test('a stream passes through as it comes, and ends when its reader leaves', async () => {
  const arrived = Promise.withResolvers<http.ServerResponse>()
  const { port } = await startSite((_, response) => {
    response.writeHead(200).flushHeaders()
    arrived.resolve(response)
  })
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  const client = dial(proxy)
  client.write(`GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`)
  const response = await arrived.promise
  await once(client, 'data')
  response.write('event')
  const [chunk] = await once(client, 'data')
  expect(String(chunk)).toContain('event')
  const gone = once(response, 'close')
  client.destroy()
  await gone
})

test('more connections than allowed are not accepted, and heads must come in time', async () => {
  const { port } = await startSite()
  const proxy = await startTestProxy([`127.0.0.1:${port}`], {
    limits: { maxConnections: 8, headTimeoutMs: 100 },
  })
  const idle = Array.from({ length: 8 }, () => dial(proxy))
  for (const socket of idle) socket.write('GET http://127')
  await Promise.all(idle.map((socket) => once(socket, 'connect')))
  expect(await sendRaw(proxy, REQUEST)).toBe('')
  await Promise.all(idle.map((socket) => text(socket).catch(() => '')))
  for (const socket of idle) socket.destroy()
  await vi.waitFor(async () => expect((await ask(proxy, `http://127.0.0.1:${port}/`)).status).toBe(200))
})

test('a connection on which nothing happens is closed', async () => {
  const { port } = await startSite(() => {})
  const proxy = await startTestProxy([`127.0.0.1:${port}`], { limits: { idleTimeoutMs: 100 } })
  await expect(ask(proxy, `http://127.0.0.1:${port}/`)).rejects.toThrow(/hang up/)
})

test('a change of policy ends requests that are under way, also while their name is looked up', async () => {
  const arrived = Promise.withResolvers<void>()
  const { port } = await startSite(() => arrived.resolve())
  const asked = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<string[]>()
  const proxy = await startTestProxy(['*.test', `127.0.0.1:${port}`], {
    resolve: (host) => {
      if (host === '127.0.0.1') return Promise.resolve([host])
      asked.resolve()
      return answer.promise
    },
  })
  const running = expect(ask(proxy, `http://127.0.0.1:${port}/`)).rejects.toThrow(/hang up/)
  const pending = expect(ask(proxy, 'http://slow.test/')).rejects.toThrow(/hang up/)
  await Promise.all([arrived.promise, asked.promise])
  proxy.policyChanged() // Nothing has changed.
  expect(proxy.denied).toEqual([])
  proxy.setPolicy({ mode: 'none' })
  proxy.policyChanged()
  await Promise.all([running, pending])
  answer.resolve([PUBLIC])
  expect(proxy.dialled).toEqual([['127.0.0.1']])
  expect(proxy.denied.map(({ host }) => host)).toEqual(['127.0.0.1', 'slow.test'])
})

test('closing ends what is under way, upstream too, and leaves nothing', async () => {
  const arrived = Promise.withResolvers<http.IncomingMessage>()
  const { port } = await startSite((request) => arrived.resolve(request))
  const proxy = await startTestProxy([`127.0.0.1:${port}`])
  const request = expect(ask(proxy, `http://127.0.0.1:${port}/`)).rejects.toThrow(/hang up/)
  const { socket } = await openConnect(proxy, `127.0.0.1:${port}`)
  const idle = dial(proxy)
  await once(idle, 'connect')
  const gone = [once((await arrived.promise).socket, 'close'), once(idle.resume(), 'close')]
  await proxy.close()
  await request
  await Promise.all([...gone, text(socket).catch(() => '')])
  expect(existsSync(proxy.socketPath)).toBe(false)
  await proxy.close()
})
