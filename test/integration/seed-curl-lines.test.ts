import { afterAll, beforeAll, expect, test } from 'vitest'
import { runProcess } from './support/run-process.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

/** As printed in the documents that these APIs come from; only host, port and ids are put in. */
const CREATE = `curl -X POST http://localhost:8000/api/sessions \\
  -d '{"environment": "Python3", "provider": "e2b"}'`
const EXECUTE = `curl -X POST http://localhost:8000/api/e2b/execute \\
  -d '{"session_id": "abc-123", "code": "print(42)"}'`
const DESTROY = 'curl -X DELETE http://localhost:8000/api/sessions/abc-123?sandbox_id=xyz'

let server: TestServer
let host: string
beforeAll(async () => {
  server = await startTestServer({
    env: {
      ASH_DIALECT_PORT: '0',
      ASH_DIALECT_KEYS: 'off',
      ASH_DIALECT_PROVIDER_MAP: 'e2b=bwrap,docker=bwrap',
    },
  })
  const port = /"dialectUrl":"http:\/\/[^"]+:(\d+)"/.exec(server.log())?.[1]
  host = `localhost:${port}`
})
afterAll(() => server.close())

type Json = Record<string, unknown>

/** Runs a line as a shell would, with the ids that stand for those printed. */
async function run(line: string, ids: Record<string, string> = {}): Promise<string> {
  const put = Object.entries({ 'localhost:8000': host, ...ids })
  const real = put.reduce((text, [printed, id]) => text.replaceAll(printed, id), line)
  const { code, stdout, stderr } = await runProcess('bash', ['-c', real.replace('curl ', 'curl -sS ')])
  expect(code, stderr).toBe(0)
  return stdout
}

const json = async (line: string, ids?: Record<string, string>) => JSON.parse(await run(line, ids)) as Json

test('the lines of the sandbox system work as printed, without a key on this machine', async () => {
  const { session_id, sandbox_id, ...made } = await json(CREATE)
  expect(made).toMatchObject({ provider: 'bwrap', status: 'running' })
  const ids = { 'abc-123': String(session_id), xyz: String(sandbox_id) }
  expect(await json(EXECUTE, ids)).toMatchObject({ stdout: '42\n', stderr: '', error: null, artifacts: [] })
  expect(await json(DESTROY, ids)).toEqual({ status: 'deleted', session_id })
  expect(await json(EXECUTE)).toMatchObject({ code: 'session_not_found' })
})

test('so do the paths that it lists', async () => {
  const at = 'http://localhost:8000/api'
  const { session_id } = await json(
    `curl -X POST ${at}/sessions/ -d '{"provider": "e2b", "environment": "Python3"}'`,
  )
  const ids = { '{session_id}': String(session_id) }
  const write = `curl -X POST ${at}/e2b/files -d '{"session_id": "{session_id}", "file_path": "a.txt", "content": "YQ=="}'`
  expect(await json(write, ids)).toEqual({ status: 'success', file_path: 'a.txt' })
  expect(await json(`curl ${at}/e2b/files/{session_id}`, ids)).toMatchObject({ files: [{ name: 'a.txt' }] })
  expect(await json(`curl ${at}/sessions/{session_id}`, ids)).toMatchObject({ status: 'active' })
  expect(await json(`curl -X DELETE ${at}/sessions/{session_id}`, ids)).toMatchObject({ status: 'deleted' })
})

/** Method, path and what to send; each in the order in which it is printed. */
const V1 = [
  ['POST', '/api/v1/sessions', { id: 'abc-123', template_id: 'python-basic' }, { status: 'running' }],
  ['GET', '/api/v1/sessions/{id}', undefined, { id: 'abc-123' }],
  [
    'POST',
    '/api/v1/sessions/{id}/execute',
    { code: 'print(42)', language: 'python' },
    { session_id: 'abc-123' },
  ],
  ['GET', '/api/v1/sessions/{id}/status', undefined, { session_id: 'abc-123' }],
  ['GET', '/api/v1/sessions/{id}/result', undefined, { code: 'print(42)' }],
  ['GET', '/api/v1/containers', undefined, { total: 1 }],
  ['GET', '/api/v1/containers/{container}', undefined, { session_id: 'abc-123' }],
  ['POST', '/api/v1/templates', { id: 'mine', name: 'Mine', image_url: 'image' }, { id: 'mine' }],
] as const

test('every path of the sandbox platform answers on both listeners', async () => {
  const key = `-H 'Authorization: Bearer ${server.apiKey}'`
  for (const base of [`http://${host}`, server.url]) {
    const ids: Record<string, string> = { '{id}': 'abc-123' }
    for (const [method, path, body, expected] of V1) {
      const data = body ? `-d '${JSON.stringify(body)}'` : ''
      const answer = await json(`curl -X ${method} ${key} ${base}${path} ${data}`, ids)
      expect(answer, path).toMatchObject(expected)
      if (typeof answer.container_id === 'string') ids['{container}'] ??= answer.container_id
    }
    const logs = `curl ${key} ${base}/api/v1/containers/{container}/logs`
    expect(await run(logs, ids)).toContain('42')
    expect(await run(`curl ${key} ${base}/api/v1/templates`)).toContain('"mine"')
    const remove = `curl -o /dev/null -w '%{http_code}' -X DELETE ${key} ${base}/api/v1`
    expect(await run(`${remove}/sessions/{id}`, ids)).toBe('204')
    expect(await run(`${remove}/templates/mine`)).toBe('204')
  }
})
