import { AshClient } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runProcess, runServer } from './support/run-process.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let port: string
const dialectPort = () => /"dialectUrl":"http:\/\/[^"]*:(\d+)"/.exec(server.log())?.[1]
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_KEYS: 'off', ASH_DIALECT_PORT: '0' } })
  port = new URL(server.url).port
})
afterAll(() => server.close())

interface Answer {
  status: number
  body: string
}

/** A real request with such headers: `fetch` would not let us name another host. */
async function ask(
  headers: string[],
  { path = '/api/sessions', args = [] as string[] } = {},
): Promise<Answer> {
  const named = headers.flatMap((header) => ['-H', header])
  const url = path.startsWith('http') ? path : server.url + path
  const options = ['-s', '--max-time', '20', '-w', '\n%{http_code}', ...args, ...named]
  const { stdout } = await runProcess('curl', [...options, url])
  const end = stdout.lastIndexOf('\n')
  return { status: Number(stdout.slice(end + 1)), body: stdout.slice(0, end) }
}

const CREATE = ['-X', 'POST', '-d', '{"template":"python"}']

test('programs of this machine need no key', async () => {
  const client = new AshClient({ baseUrl: server.url, retries: 0 })
  const run = await client.execute({ template: 'python', code: 'print(42)' })
  expect(run.stdout).toBe('42\n')
  for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, '[::1]'])
    expect((await ask([`Host: ${host}`])).status, host).toBe(200)
  expect((await ask([`Origin: ${server.url}`])).status).toBe(200)
})

test.each(['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example', '10.0.0.1'])(
  'a name that was made to point here, %s, is refused',
  async (name) => {
    for (const path of ['/api/sessions', '/metrics', '/api/v1/sessions', '/nowhere']) {
      const { status, body } = await ask([`Host: ${name}:${port}`], { path })
      expect([path, status]).toEqual([path, 403])
      expect(body).toContain('Bearer')
    }
    expect(JSON.parse((await ask([`Host: ${name}`])).body)).toMatchObject({
      code: 'forbidden',
      statusCode: 403,
    })
  },
)

test('a sandbox does not reach it, whatever its network policy names', async () => {
  const { sessions } = server.client
  const names = ['localhost', '127.0.0.1', '0.0.0.0', '[::ffff:127.0.0.1]']
  const places = names.flatMap((name) => [`${name}:${port}`, `${name}:${dialectPort()}`])
  const { id } = await sessions.create({ template: 'python', network: places })
  for (const place of places) {
    const get = `curl -s -o /dev/null -w '%{http_code} ' --noproxy '' -x "$http_proxy"`
    const direct = `${get} http://${place}/api/sessions`
    const tunnelled = `${get} -p -H 'Host: localhost' http://${place}/api/sessions`
    const { stdout } = await sessions.exec(id, { command: `${direct}; ${tunnelled}; true` })
    expect([place, stdout]).toEqual([place, '403 000 '])
  }
  await sessions.end(id)
})

test('a page of another site, or of another port, is refused', async () => {
  const before = await server.client.sessions.list()
  const origins = ['https://evil.example', 'null', 'http://localhost:1', `http://3000-x.localhost:${port}`]
  for (const header of [...origins.map((origin) => `Origin: ${origin}`), 'Sec-Fetch-Site: cross-site']) {
    // What a form or a simple request of a page can send.
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/json'])
      expect((await ask([header, `Content-Type: ${type}`], { args: CREATE })).status, header).toBe(403)
    expect((await ask([header])).status, header).toBe(403)
  }
  expect((await server.client.sessions.list()).sessions).toEqual(before.sessions)
})

test('neither opens a WebSocket', async () => {
  const { id } = await server.client.sessions.create({ template: 'python' })
  const upgrade = [
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
  ]
  const path = `/api/sessions/${id}/terminal`
  for (const header of ['Origin: https://evil.example', 'Host: evil.example'])
    expect((await ask([...upgrade, header], { path })).status, header).toBe(403)
  // Open until curl gives up.
  expect((await ask(upgrade, { path, args: ['--max-time', '2'] })).status).toBe(101)
  await server.client.sessions.end(id)
})

test('a key is a key as ever', async () => {
  expect((await ask(['Host: ash.example', `Authorization: Bearer ${server.apiKey}`])).status).toBe(200)
  expect((await ask(['Authorization: Bearer wrong'])).status).toBe(401)
})

test('the listener of the dialects follows', async () => {
  const url = /"dialectUrl":"([^"]+)"/.exec(server.log())?.[1]
  const path = `${url}/api/v1/sessions`
  expect((await ask([], { path })).status).toBe(200)
  const refused = await ask(['Origin: https://evil.example'], { path })
  expect(refused.status).toBe(403)
  expect(JSON.parse(refused.body)).toMatchObject({ error_code: expect.stringMatching(/^Sandbox\./) })
})

test('keys are off on loopback alone', async () => {
  const env = { ASH_HOST: '0.0.0.0', ASH_KEYS: 'off', ASH_DATA_DIR: '/nonexistent/ash' }
  const { code, output } = await runServer(env)
  expect(code).toBe(2)
  expect(output).toContain('ASH_KEYS')
})
