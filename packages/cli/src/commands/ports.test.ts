import { afterEach, expect, test } from 'vitest'
import { type Api, runCli, SESSION, sendJson, startApi } from '../testing/run-cli.ts'

const BASE = `/api/sessions/${SESSION.id}/ports`
const LINK = {
  url: `http://3000-${SESSION.id}.localhost:4101/?ash_token=abc.def`,
  expiresAt: '2026-01-01T01:00:00.000Z',
}

let api: Api | undefined
afterEach(() => api?.close())

async function run(args: string[], replies: Record<string, unknown>) {
  const routes = Object.entries(replies).map(([route, body]) => [
    route,
    (response: Parameters<typeof sendJson>[0]) => sendJson(response, 200, body),
  ])
  await api?.close()
  api = await startApi(Object.fromEntries(routes))
  return await runCli([...args, '--url', api.url])
}

test('ports are a table, or a note that there are none', async () => {
  const ports = [
    { port: 3000, address: '127.0.0.1', pid: 7, command: 'node \x1b[31mserver.js' },
    { port: 8080, address: '::' },
  ]
  const { stdout } = await run(['ports', SESSION.id], { [`GET ${BASE}`]: { ports } })
  expect(stdout.split('\n').slice(0, 3)).toEqual([
    'PORT  ADDRESS    PID  COMMAND',
    '3000  127.0.0.1  7    node \\x1b[31mserver.js',
    '8080  ::',
  ])
  const json = await run(['ports', SESSION.id, '--json'], { [`GET ${BASE}`]: { ports } })
  expect(JSON.parse(json.stdout)).toEqual({ ports })
  const none = await run(['ports', SESSION.id], { [`GET ${BASE}`]: { ports: [] } })
  expect(none).toMatchObject({ code: 0, stdout: '', stderr: 'Nothing listens in the session.\n' })
})

test('a preview is a link on stdout, with what was asked for', async () => {
  const routes = { [`POST ${BASE}/3000/links`]: LINK }
  const plain = await run(['preview', SESSION.id, '3000'], routes)
  expect(plain).toMatchObject({ code: 0, stdout: `${LINK.url}\n` })
  expect(plain.stderr).toContain('2026-01-01T01:00:00.000Z')
  expect(api?.requests[0]?.json).toEqual({})
  const json = await run(['preview', SESSION.id, '3000', '--expires', '90m', '--wake', '--json'], routes)
  expect(JSON.parse(json.stdout)).toEqual(LINK)
  expect(api?.requests[0]?.json).toEqual({ expiresIn: 5400, wake: true })
})

test.each(['0', '65536', 'http', '3000x'])('%s is no port', async (port) => {
  const { code, stderr } = await run(['preview', SESSION.id, port], {})
  expect(code).toBe(2)
  expect(stderr).toContain('port')
  expect(api?.requests).toEqual([])
})
