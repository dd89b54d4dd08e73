import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { json, text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createAppSession, leaveRunning, APP_PORT as PORT } from './support/inside-programs.ts'
import { addTenant } from './support/pool-view.ts'
import { PreviewClient } from './support/preview-client.ts'
import { rawRequest } from './support/raw-http.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let sessionId: string
beforeAll(async () => {
  server = await startTestServer()
  sessionId = await createWithApp()
})
afterAll(() => server.close())

const createWithApp = (options: { idleTimeout?: number } = {}) => createAppSession(server.client, options)

const linkTo = async (id: string, port = PORT, options: { expiresIn?: number; wake?: boolean } = {}) =>
  new PreviewClient(await server.client.ports.link(id, port, options))

async function enter(id: string, port = PORT, options: { wake?: boolean } = {}): Promise<PreviewClient> {
  const preview = await linkTo(id, port, options)
  await preview.enter()
  return preview
}

const headersSeenBy = async (preview: PreviewClient, headers: Record<string, string> = {}) => {
  const pairs = JSON.parse((await preview.get('/headers', headers)).text) as [string, string][]
  return Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), value]))
}

test('ports are those on which the session’s own programs listen', async () => {
  const ports = await server.client.ports.list(sessionId)
  expect(ports).toEqual([
    { port: PORT, address: '127.0.0.1', pid: expect.any(Number), command: `python3 app.py ${PORT}` },
  ])
})

test('a page is there as soon as something serves it, whatever that speaks', async () => {
  const port = PORT + 10
  await server.client.files.write(sessionId, 'site/index.html', '<h1>From inside</h1>')
  await leaveRunning(server.client, sessionId, ['python3', '-m', 'http.server', String(port), '-d', 'site'])
  const preview = await enter(sessionId, port)
  const page = await eventually(
    () => preview.get('/'),
    ({ status }) => status === 200,
  )
  expect(page).toMatchObject({ headers: { 'content-type': 'text/html' }, text: '<h1>From inside</h1>' })
})

test('many requests at once are all answered', async () => {
  const preview = await enter(sessionId)
  const paths = Array.from({ length: 150 }, (_, index) => `/${index}`)
  const replies = await Promise.all(paths.map((path) => preview.get(path)))
  expect(replies.map(({ text: body }) => body)).toEqual(paths.map((path) => `hello from ${path}`))
})

describe('a link', () => {
  test('leaves a cookie for its own origin, and nothing in the address', async () => {
    const preview = await linkTo(sessionId)
    expect(preview.url.hostname).toBe(`${PORT}-${sessionId}.localhost`)
    const { status, headers } = await preview.get(`/a/b?x=1&ash_token=${preview.token}&y=%20`)
    expect(status).toBe(303)
    expect(headers.location).toBe(`${preview.url.origin}/a/b?x=1&y=%20`)
    expect(headers['cache-control']).toBe('no-store')
    const [cookie = '', ...others] = headers['set-cookie'] ?? []
    expect(others).toEqual([])
    expect(cookie).toMatch(/^ash_preview=[\w.-]+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=3\d{3}$/)
    await preview.enter()
    expect(await preview.get('/a?b=c')).toMatchObject({ status: 200, text: 'hello from /a?b=c' })
  })

  test('is refused when it was changed, has expired or is for something else', async () => {
    const preview = await linkTo(sessionId)
    expect(await preview.get('/')).toMatchObject({ status: 401 })
    const changed = preview.token.replace(/^./, (char) => (char === 'A' ? 'B' : 'A'))
    expect(await preview.get(`/?ash_token=${changed}`)).toMatchObject({ status: 403 })
    const other = await linkTo(sessionId, PORT + 1)
    expect(await other.get(`/?ash_token=${preview.token}`)).toMatchObject({ status: 403 })
    expect(await other.get('/', { cookie: `ash_preview=${preview.token}` })).toMatchObject({ status: 401 })
    const short = await linkTo(sessionId, PORT, { expiresIn: 1 })
    await short.enter()
    expect(await short.get('/')).toMatchObject({ status: 200 })
    await eventually(
      () => short.get('/'),
      ({ status }) => status === 401,
    )
    expect(await short.get(`/?ash_token=${short.token}`)).toMatchObject({ status: 403 })
  })

  test('cannot be made by another tenant, whose key opens nothing here either', async () => {
    const stranger = addTenant(server, 'stranger')
    await expect(stranger.ports.link(sessionId, PORT)).rejects.toMatchObject({ code: 'session_not_found' })
    await expect(stranger.ports.list(sessionId)).rejects.toMatchObject({ code: 'session_not_found' })
    const preview = await linkTo(sessionId)
    const mine = await stranger.sessions.create({ template: 'python' })
    const theirs = new PreviewClient(await stranger.ports.link(mine.id, PORT))
    expect(await preview.get('/', { cookie: `ash_preview=${theirs.token}` })).toMatchObject({ status: 401 })
    await stranger.sessions.end(mine.id)
  })
})

describe('what goes inside', () => {
  test('is addressed to localhost and carries nothing of Ash', async () => {
    const preview = await enter(sessionId)
    const cookie = `${preview.headers.cookie}; own=2`
    const seen = await headersSeenBy(preview, {
      cookie,
      origin: preview.url.origin,
      authorization: 'Bearer app',
    })
    expect(seen).toMatchObject({
      host: `localhost:${PORT}`,
      origin: `http://localhost:${PORT}`,
      cookie: 'own=2',
      authorization: 'Bearer app',
      'x-forwarded-host': preview.url.host,
      'x-forwarded-proto': 'http',
      'x-forwarded-for': '127.0.0.1',
    })
  })

  test('is the same for a program with a key, which goes no further', async () => {
    const preview = await linkTo(sessionId)
    const authorization = `Bearer ${server.apiKey}`
    expect(await headersSeenBy(preview, { authorization })).not.toHaveProperty('authorization')
    await preview.enter()
    expect(await headersSeenBy(preview, { authorization })).not.toHaveProperty('authorization')
    preview.headers = {}
    expect(await preview.get('/', { authorization: 'Bearer wrong' })).toMatchObject({ status: 401 })
  })

  test('a redirect to itself stays in the preview', async () => {
    const preview = await enter(sessionId)
    expect(await preview.get('/redirect')).toMatchObject({ status: 302, headers: { location: '/there' } })
  })

  test('a request of another site’s page is refused, a followed link is not', async () => {
    const preview = await enter(sessionId)
    const evil = { origin: 'http://evil.localhost:4101' }
    expect(await preview.get('/', evil)).toMatchObject({ status: 403 })
    await expect(preview.socket('/ws', evil)).rejects.toThrow('403')
    expect(await preview.get('/', { 'sec-fetch-site': 'cross-site' })).toMatchObject({ status: 403 })
    const followed = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }
    expect(await preview.get('/', followed)).toMatchObject({ status: 200 })
    const policyFor = async (headers = {}) =>
      (await preview.get('/', headers)).headers['cross-origin-resource-policy']
    expect(await policyFor()).toBe('same-origin')
    expect(await policyFor({ 'sec-fetch-site': 'same-origin' })).toBeUndefined()
  })
})

describe('streams', () => {
  test('server-sent events arrive when they are sent', async () => {
    const preview = await enter(sessionId)
    const events = await preview.open('/events')
    let seen = ''
    events.on('data', (chunk: Buffer) => {
      seen += chunk.toString()
    })
    await eventually(
      () => seen,
      (now) => now === 'data: first\n\n',
    )
    const ended = once(events, 'end')
    await preview.get('/go')
    await ended
    expect(seen).toBe('data: first\n\ndata: second\n\n')
  })

  test('a WebSocket passes in both directions', async () => {
    const preview = await enter(sessionId)
    const socket = await preview.socket('/ws', { origin: preview.url.origin })
    expect(await socket.echo('hello')).toBe('hello')
    expect(await socket.echo('again')).toBe('again')
    socket.socket.destroy()
  })

  test('50 MB go out and in', async () => {
    const preview = await enter(sessionId)
    const size = 50 * 1024 * 1024
    const down = await preview.open(`/big?bytes=${size}`)
    let received = 0
    for await (const chunk of down) received += (chunk as Buffer).length
    expect(received).toBe(size)
    const part = randomBytes(1024 * 1024)
    const parts = Array.from({ length: 50 }, () => part)
    const hash = createHash('sha256')
    for (const each of parts) hash.update(each)
    const headers = { 'content-length': String(size) }
    const up = await preview.open('/upload', { method: 'POST', headers, body: parts })
    expect(await json(up)).toEqual({ size, sha256: hash.digest('hex') })
  })

  test('an answer that breaks off is not taken for a whole one', async () => {
    const preview = await enter(sessionId)
    await expect(text(await preview.open('/break'))).rejects.toThrow('aborted')
  })
})

describe('instead of a preview', () => {
  test('where nothing listens there is a page that says what to do', async () => {
    const preview = await enter(sessionId, PORT + 1)
    const page = await preview.get('/', { accept: 'text/html' })
    expect(page).toMatchObject({ status: 502, headers: { 'content-type': 'text/html; charset=utf-8' } })
    expect(page.text).toContain(`Nothing listens on port ${PORT + 1}`)
    expect(JSON.parse((await preview.get('/')).text)).toMatchObject({ code: 'port_closed', statusCode: 502 })
    await expect(preview.socket('/ws')).rejects.toThrow('502')
  })

  test('of a paused session only a link that may wakes it, and an ended one is gone', async () => {
    const id = await createWithApp()
    const plain = await enter(id)
    const waking = await enter(id, PORT, { wake: true })
    await server.client.sessions.pause(id)
    expect(await server.client.ports.list(id)).toEqual([])
    expect(await plain.get('/')).toMatchObject({ status: 503 })
    const authorization = `Bearer ${server.apiKey}`
    expect(await (await linkTo(id)).get('/', { authorization })).toMatchObject({ status: 503 })
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'paused' })
    expect(await waking.get('/')).toMatchObject({ status: 200 })
    expect(await plain.get('/')).toMatchObject({ status: 200 })
    await server.client.sessions.end(id)
    expect(await plain.get('/')).toMatchObject({ status: 410 })
    expect(await waking.get('/')).toMatchObject({ status: 410 })
  })
})

describe('a session with an open connection', () => {
  test('is at work, however silent', async () => {
    const idleTimeout = 1_500
    const id = await createWithApp({ idleTimeout })
    const preview = await enter(id)
    const socket = await preview.socket('/ws')
    const opened = Date.now()
    const asked = await eventually(
      () => server.client.sessions.get(id),
      ({ status }) => status !== 'active' || Date.now() - opened > 2.5 * idleTimeout,
    )
    expect(asked).toMatchObject({ status: 'active', sandboxState: 'running' })
    expect(await socket.echo('still')).toBe('still')
    socket.socket.destroy()
    await eventually(
      () => server.client.sessions.get(id),
      ({ status }) => status === 'paused',
    )
    await server.client.sessions.end(id)
  })

  test('is idle again when whoever woke it did not wait', async () => {
    const id = await createWithApp({ idleTimeout: 1_500 })
    const preview = await enter(id, PORT, { wake: true })
    await server.client.sessions.stop(id)
    const asking = await preview.dial('/')
    const statusIs = (wanted: (status: string) => boolean) =>
      eventually(
        () => server.client.sessions.get(id),
        ({ status }) => wanted(status),
      )
    await statusIs((status) => status !== 'paused')
    asking.destroy()
    await statusIs((status) => status === 'active')
    await statusIs((status) => status === 'paused')
    await server.client.sessions.end(id)
  })

  test('can be paused, which cuts it', async () => {
    const id = await createWithApp()
    const preview = await enter(id)
    const socket = await preview.socket('/ws')
    expect(await socket.echo('before')).toBe('before')
    const began = Date.now()
    expect(await server.client.sessions.pause(id)).toMatchObject({
      status: 'paused',
      sandboxState: 'waiting',
    })
    expect(Date.now() - began).toBeLessThan(10_000)
    await socket.closed
    await server.client.sessions.end(id)
  })
})

describe('previews and the API', () => {
  test('share no origin: neither serves what the other does', async () => {
    const preview = await enter(sessionId)
    const authorization = `Bearer ${server.apiKey}`
    expect((await preview.get('/api/sessions', { authorization })).text).toBe('hello from /api/sessions')
    const { origin } = preview.url
    const direct = { host: new URL(server.url).host, authorization }
    const loopback = `http://127.0.0.1:${preview.url.port}`
    expect(await rawRequest(loopback, { path: '/api/sessions', headers: direct })).toMatchObject({
      status: 404,
    })
    const asPreview = { host: preview.url.host, ...preview.headers, origin }
    expect(await rawRequest(server.url, { path: '/', headers: asPreview })).toMatchObject({ status: 401 })
  })

  test('a page of a preview can neither read nor change anything of the API', async () => {
    const preview = await enter(sessionId)
    const { origin } = preview.url
    const headers = { ...preview.headers, origin }
    for (const request of [
      { path: '/api/sessions', headers },
      { path: `/api/sessions/${sessionId}/pause`, method: 'POST', headers },
      {
        path: '/api/sessions',
        method: 'OPTIONS',
        headers: { ...headers, 'access-control-request-method': 'POST' },
      },
    ]) {
      const reply = await rawRequest(server.url, request)
      expect(reply.status).toBe(401)
      expect(Object.keys(reply.headers).filter((name) => name.startsWith('access-control'))).toEqual([])
    }
  })

  test('the socket of the tunnels is of no use to anybody inside', async () => {
    const script = `import socket
for line in (b"0" * 64 + b"\\n", b"GET / HTTP/1.1\\r\\n" * 10):
    s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect("/run/ash/tunnel.sock"); s.sendall(line)
    print(s.recv(100))`
    const dialled = await server.client.sessions.execute(sessionId, { code: script, language: 'python' })
    expect(dialled).toMatchObject({ status: 'completed', stdout: "b''\nb''\n" })
    expect(await (await enter(sessionId)).get('/')).toMatchObject({ status: 200 })
  })
})
