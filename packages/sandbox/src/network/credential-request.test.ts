import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, test, vi } from 'vitest'
import { headerOf, SECRET, startApi, startCredentialProxy } from '../testing/credential-fixture.ts'
import { ask, dial, listen, openConnect, PUBLIC, sendRaw } from '../testing/egress-fixture.ts'

const URL = 'http://github.credentials.ash/'

test('a request goes to the host of the credential, over TLS and with the credential, under the policy none', async () => {
  const { port, seen } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  const reply = await ask(proxy, `${URL}repos?page=2`, { method: 'POST', body: 'hello' })
  expect(reply).toMatchObject({ status: 200, body: `hello from api.test:${port}/repos?page=2` })
  expect(seen).toMatchObject([{ method: 'POST', url: '/repos?page=2', body: 'hello' }])
  expect(seen.map((one) => headerOf(one, 'authorization'))).toEqual([[`Bearer ${SECRET}`]])
  expect(proxy).toMatchObject({ lookups: ['api.test'], dialled: [[PUBLIC]], denied: [] })
})

test('the bytes of it are counted as they cross the network', async () => {
  const { port } = await startApi({ handler: (_, response) => response.end('x'.repeat(50_000)) })
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  await ask(proxy, URL, { method: 'POST', body: 'y'.repeat(20_000) })
  await vi.waitFor(() => expect(proxy.counters().receivedBytes).toBeGreaterThan(50_000))
  expect(proxy.counters()).toMatchObject({ connections: 1, denied: 0 })
  expect(proxy.counters().sentBytes).toBeGreaterThan(20_000)
})

test('what the sandbox says of itself does not reach the host, whatever way it is written', async () => {
  const { port, seen } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  await sendRaw(
    proxy,
    `GET ${URL} HTTP/1.1\r\nHost: github.credentials.ash\r\nAuthorization: Bearer own\r\nAUTHORIZATION: Basic own\r\n` +
      'Cookie: session=own\r\nProxy-Authorization: Basic own\r\nConnection: close, authorization\r\nX-Kept: 1\r\n\r\n',
  )
  const [request] = seen
  expect(JSON.stringify(request)).not.toContain('own')
  expect(request && headerOf(request, 'authorization')).toEqual([`Bearer ${SECRET}`])
  expect(request && headerOf(request, 'x-kept')).toEqual(['1'])
  expect(request && headerOf(request, 'host')).toEqual([`api.test:${port}`])
})

test('the answer comes as it is, but without cookies, and redirects are left to the sandbox', async () => {
  const { port, seen } = await startApi({
    handler: (_, response) =>
      response
        .writeHead(302, { location: 'https://evil.test/', 'set-cookie': ['a=1', 'b=2'], 'x-rate': '9' })
        .end('moved'),
  })
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  const { status, headers, body } = await ask(proxy, URL)
  expect({ status, body }).toEqual({ status: 302, body: 'moved' })
  expect(headers).toMatchObject({ location: 'https://evil.test/', 'x-rate': '9' })
  expect(headers['set-cookie']).toBeUndefined()
  expect(seen).toHaveLength(1)
  expect((await ask(proxy, 'http://evil.test/')).status).toBe(403)
})

test('another host of the credential is chosen by X-Ash-Host, which stays here', async () => {
  const one = await startApi()
  const two = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`api.test:${one.port}`, `up.test:${two.port}`] })
  const headers = { 'x-ash-host': `UP.test:${two.port}` }
  expect((await ask(proxy, URL, { headers })).body).toBe(`hello from up.test:${two.port}/`)
  expect(one.seen).toEqual([])
  expect(two.seen.map((request) => headerOf(request, 'x-ash-host'))).toEqual([[]])
})

test.each([
  'evil.test',
  '127.0.0.1',
  'api.test:444',
  'api.test@evil.test',
  'api.test/..//evil.test',
  'http://api.test',
  '*',
  '',
])('X-Ash-Host: %s is refused, and told as an event', async (host) => {
  const proxy = await startCredentialProxy({ hosts: ['api.test'] })
  const reply = await ask(proxy, URL, { headers: { 'x-ash-host': host } })
  expect(reply).toMatchObject({
    status: 403,
    body: expect.stringContaining('is not one that this credential is for'),
  })
  expect(proxy.denied).toMatchObject([{ host: 'github.credentials.ash', port: 80 }])
  expect(proxy).toMatchObject({ lookups: [], dialled: [] })
})

test.each([
  ['no TLS to a host that is for TLS', (port: number) => `http://api.test:${port}`],
  ['TLS to a host that is not', (port: number) => `api.test:${port}`],
])('X-Ash-Host cannot ask for %s', async (_, wanted) => {
  const { port } = await startApi({ isTls: false })
  const own = wanted(port).startsWith('http:') ? `api.test:${port}` : `http://api.test:${port}`
  const proxy = await startCredentialProxy({ hosts: [own] })
  expect((await ask(proxy, URL, { headers: { 'x-ash-host': wanted(port) } })).status).toBe(403)
})

test('a host written with http:// is spoken to without TLS', async () => {
  const { port, seen } = await startApi({ isTls: false })
  const proxy = await startCredentialProxy({ hosts: [`http://127.0.0.1:${port}`] })
  expect((await ask(proxy, `${URL}x`)).body).toBe(`hello from 127.0.0.1:${port}/x`)
  expect(seen.map((request) => headerOf(request, 'authorization'))).toEqual([[`Bearer ${SECRET}`]])
})

test.each([
  ['//evil.test/x', '//evil.test/x'],
  ['/http://evil.test/', '/http://evil.test/'],
  ['/../../x', '/../../x'],
  ['/%2e%2e/x', '/%2e%2e/x'],
  ['/@evil.test', '/@evil.test'],
  ['?u=http://evil.test', '/?u=http://evil.test'],
  ['/\\evil.test', '/\\evil.test'],
])('the path %s stays a path of the host', async (path, url) => {
  const { port, seen } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  await sendRaw(
    proxy,
    `GET http://github.credentials.ash${path} HTTP/1.1\r\nHost: github.credentials.ash\r\nConnection: close\r\n\r\n`,
  )
  expect(seen).toMatchObject([{ url }])
  expect(proxy.lookups).toEqual(['api.test'])
})

test.each(['GITHUB.credentials.ash', 'github.credentials.ash.', 'GitHub.Credentials.ASH.:80'])(
  'the name %s is the same credential',
  async (host) => {
    const { port, seen } = await startApi()
    const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
    const head = `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`
    expect(await sendRaw(proxy, head)).toMatch(/^HTTP\/1.1 200/)
    expect(seen).toHaveLength(1)
  },
)

const raw = (url: string, host = 'github.credentials.ash', more = '') =>
  `GET ${url} HTTP/1.1\r\nHost: ${host}\r\n${more}Connection: close\r\n\r\n`

test.each([
  ['a Host header for another host', raw(URL, 'evil.test')],
  ['a Host header for another credential', raw(URL, 'other.credentials.ash')],
  ['two Host headers', raw(URL, 'github.credentials.ash', 'Host: evil.test\r\n')],
  ['another name with the Host of the credential', raw('http://evil.test/')],
  ['a user before the name', raw('http://x@github.credentials.ash/')],
  ['the name as the user', raw('http://github.credentials.ash@evil.test/', 'evil.test')],
  ['another port', raw('http://github.credentials.ash:8080/', 'github.credentials.ash:8080')],
  ['https', raw('https://github.credentials.ash/')],
  ['a tunnel for TLS', 'CONNECT github.credentials.ash:443 HTTP/1.1\r\n\r\n'],
  ['two hosts to choose', raw(URL, undefined, 'X-Ash-Host: api.test\r\nX-Ash-Host: api.test\r\n')],
  ['two lengths', raw(URL, undefined, 'Content-Length: 4\r\nContent-Length: 5\r\n')],
  ['a length and chunks', raw(URL, undefined, 'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n')],
])('%s is 400', async (_, bytes) => {
  const proxy = await startCredentialProxy({ hosts: ['api.test'] })
  expect(await sendRaw(proxy, bytes)).toMatch(/^HTTP\/1.1 400/)
  expect(proxy).toMatchObject({ lookups: [], dialled: [] })
})

test('a body cannot hold a second request that would get the credential', async () => {
  const { port, seen } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  const body = 'DELETE /smuggled HTTP/1.1\r\nHost: x\r\n\r\n'
  await sendRaw(
    proxy,
    `POST ${URL} HTTP/1.1\r\nHost: github.credentials.ash\r\nConnection: close, content-length\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`,
  )
  expect(seen).toMatchObject([{ method: 'POST', url: '/', body }])
})

test.each(['TRACE', 'TRACK'])('%s, which would show the credential, is refused', async (method) => {
  const proxy = await startCredentialProxy({ hosts: ['api.test'] })
  const reply = await sendRaw(proxy, raw(URL).replace('GET', method))
  expect(reply).toMatch(/^HTTP\/1.1 40[05]/)
  expect(proxy.dialled).toEqual([])
})

test.each(['gitlab', 'git-hub', 'constructor'])(
  'the credential %s, which is not given, is 403 with the setting, and an event',
  async (name) => {
    const proxy = await startCredentialProxy(
      { hosts: ['api.test'] },
      { findCredential: async () => undefined },
    )
    const reply = await ask(proxy, `http://${name}.credentials.ash/`)
    const setting = `credentials: ["${name}"]`
    expect(reply).toMatchObject({ status: 403, body: expect.stringContaining(setting) })
    expect(proxy.denied).toMatchObject([{ host: `${name}.credentials.ash`, port: 80, setting, count: 1 }])
    expect(proxy.lookups).toEqual([])
  },
)

test.each(['credentials.ash', 'a.github.credentials.ash', `${'x'.repeat(41)}.credentials.ash`])(
  'the name %s is reserved, also where everything is open',
  async (host) => {
    const proxy = await startCredentialProxy({ hosts: ['api.test'] })
    proxy.setPolicy({ mode: 'open' })
    expect((await ask(proxy, `http://${host}/`)).status).toBe(403)
    expect(proxy).toMatchObject({ lookups: [], denied: [{ host }] })
  },
)

test('one sandbox does not have the credentials of another', async () => {
  const { port } = await startApi()
  const one = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  const two = await startCredentialProxy({ hosts: ['up.test'] }, { findCredential: async () => undefined })
  expect((await ask(one, URL)).status).toBe(200)
  expect((await ask(two, URL)).status).toBe(403)
})

test('a credential that is replaced or taken away is so from the next request', async () => {
  const { port, seen } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  await ask(proxy, URL)
  proxy.given.github = {
    hosts: [`api.test:${port}`],
    scheme: { type: 'header', name: 'X-Key' },
    secret: 'new',
  }
  await ask(proxy, URL)
  expect(seen.map((request) => [headerOf(request, 'authorization'), headerOf(request, 'x-key')])).toEqual([
    [[`Bearer ${SECRET}`], []],
    [[], ['new']],
  ])
  delete proxy.given.github
  expect((await ask(proxy, URL)).status).toBe(403)
})

test('a tunnel to port 80, as Node’s fetch makes it, leads to the credential and nowhere else', async () => {
  const { port, seen } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`api.test:${port}`] })
  const { head, socket } = await openConnect(proxy, 'github.credentials.ash:80')
  expect(head).toMatch(/^HTTP\/1.1 200/)
  for (const [host, status] of [
    ['github.credentials.ash', 200],
    ['gitlab.credentials.ash', 400],
  ]) {
    socket.write(`GET /x HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
    const [reply] = await once(socket.resume(), 'data')
    expect(String(reply)).toMatch(new RegExp(`^HTTP/1.1 ${status}`))
  }
  expect(seen).toMatchObject([{ url: '/x' }])
})

test.each([
  ['that nobody vouches for', 'api.test', { ca: undefined }, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ['for another name', 'other.test', {}, 'ERR_TLS_CERT_ALTNAME_INVALID'],
])('a certificate %s is 502, and nothing was sent', async (_, host, options, code) => {
  const { port, seen } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`${host}:${port}`] }, options)
  const reply = await ask(proxy, URL)
  expect(reply).toMatchObject({ status: 502, body: expect.stringContaining(code) })
  expect(reply.body).not.toContain(SECRET)
  expect(seen).toEqual([])
})

test('an address is verified as an address', async () => {
  const { port } = await startApi()
  const proxy = await startCredentialProxy({ hosts: [`127.0.0.1:${port}`] })
  expect((await ask(proxy, URL)).status).toBe(200)
})

test('a host that is silent instead of speaking TLS is given up', async () => {
  const port = await listen(createServer(() => {}))
  const proxy = await startCredentialProxy(
    { hosts: [`api.test:${port}`] },
    { limits: { connectTimeoutMs: 100 } },
  )
  expect(await ask(proxy, URL)).toMatchObject({ status: 502, body: expect.stringContaining('timeout') })
})

test('a private address may be meant by the name of the credential, this machine may not', async () => {
  const { port } = await startApi()
  const hosts = [`api.test:${port}`]
  const inside = await startCredentialProxy({ hosts }, { names: { 'api.test': [['10.1.2.3']] } })
  expect((await ask(inside, URL)).status).toBe(200)
  const local = await startCredentialProxy({ hosts }, { names: { 'api.test': [['169.254.169.254']] } })
  expect((await ask(local, URL)).status).toBe(403)
  expect(local.dialled).toEqual([])
})

test('a credential that cannot be read is 500, without a reason that could hold it', async () => {
  const findCredential = () => Promise.reject(new Error(SECRET))
  const proxy = await startCredentialProxy({ hosts: ['api.test'] }, { findCredential })
  const reply = await ask(proxy, URL)
  expect(reply.status).toBe(500)
  expect(JSON.stringify(reply)).not.toContain(SECRET)
})

test('a client that leaves while the credential is looked up leaves nothing behind', async () => {
  const asked = Promise.withResolvers<void>()
  const found = Promise.withResolvers<undefined>()
  const proxy = await startCredentialProxy(
    { hosts: ['api.test'] },
    {
      findCredential: async () => {
        asked.resolve()
        await found.promise
        return { hosts: ['api.test'], scheme: { type: 'bearer' }, secret: SECRET }
      },
    },
  )
  const client = dial(proxy)
  client.write(raw(URL))
  await asked.promise
  client.destroy()
  await once(client, 'close')
  await new Promise((resolve) => setTimeout(resolve, 20))
  found.resolve(undefined)
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(proxy.lookups).toEqual([])
})
