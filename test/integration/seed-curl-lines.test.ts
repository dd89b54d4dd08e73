import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runProcess } from './support/run-process.ts'
import { eventually } from './support/sandbox-processes.ts'
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
    env: { ASH_KEYS: 'off', ASH_DIALECT_PORT: '0', ASH_DIALECT_PROVIDER_MAP: 'e2b=bwrap,docker=bwrap' },
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

describe('the sandbox system', () => {
  const MADE = ['session_id', 'sandbox_id', 'provider', 'status', 'url']
  const OUTCOME = ['stdout', 'stderr', 'error', 'results', 'artifacts']

  test('its lines work as printed, without a key on this machine', async () => {
    const made = await json(CREATE)
    expect(Object.keys(made)).toEqual(MADE)
    expect(made).toMatchObject({ provider: 'bwrap', status: 'running' })
    const ids = { 'abc-123': String(made.session_id), xyz: String(made.sandbox_id) }
    const outcome = await json(EXECUTE, ids)
    expect(Object.keys(outcome)).toEqual(OUTCOME)
    expect(outcome).toMatchObject({ stdout: '42\n', stderr: '', error: null, artifacts: [] })
    expect(await json(DESTROY, ids)).toEqual({ status: 'deleted', session_id: made.session_id })
    expect(await json(EXECUTE, ids)).toMatchObject({ code: 'session_ended', detail: expect.any(String) })
    expect(await json(EXECUTE)).toMatchObject({ code: 'session_not_found' })
  })

  /** Method, path and body as listed, and the fields of the answer. */
  const PATHS = [
    ['POST', '/api/sessions', '{"provider": "e2b", "environment": "Python3"}', MADE],
    ['GET', '/api/sessions/{session_id}', '', ['session_id', 'provider', 'state', 'status']],
    [
      'POST',
      '/api/e2b/execute',
      '{"session_id": "{session_id}", "code": "open(\\"a.txt\\", \\"w\\")"}',
      OUTCOME,
    ],
    ['GET', '/api/e2b/files/{session_id}', '', ['session_id', 'directory', 'files']],
    [
      'POST',
      '/api/e2b/files',
      '{"session_id": "{session_id}", "file_path": "b.txt", "content": "YQ=="}',
      ['status', 'file_path'],
    ],
    ['GET', '/api/e2b/files/{session_id}/b.txt', '', ['session_id', 'file_path', 'content', 'encoding']],
    ['GET', '/api/e2b/url/{session_id}', '', ['session_id', 'url']],
    ['DELETE', '/api/sessions/{session_id}', '', ['status', 'session_id']],
  ] as const

  test.each(['', '/'])('so do the paths that it lists, with "%s" at their end', async (end) => {
    let ids: Record<string, string> = {}
    for (const [method, path, body, fields] of PATHS) {
      const isFile = path.endsWith('b.txt')
      const data = body === '' ? '' : `-d '${body}'`
      const answer = await json(
        `curl -X ${method} http://localhost:8000${path}${isFile ? '' : end} ${data}`,
        ids,
      )
      expect(Object.keys(answer), path).toEqual(expect.arrayContaining([...fields]))
      if (typeof answer.sandbox_id === 'string') ids = { '{session_id}': String(answer.session_id) }
    }
  })
})

describe('the sandbox platform', () => {
  const SESSION = [
    'id template_id status resource_limit workspace_path language_runtime runtime_type runtime_node container_id',
    'pod_name env_vars timeout python_package_index_url requested_dependencies installed_dependencies',
    'dependency_install_status dependency_install_error dependency_install_started_at',
    'dependency_install_completed_at created_at updated_at completed_at last_activity_at',
  ]
  const SUBMITTED = ['execution_id session_id status created_at']
  const EXECUTION = [
    'id session_id status code language timeout exit_code error_message execution_time stdout stderr artifacts',
    'retry_count created_at started_at completed_at return_value metrics',
  ]
  const CONTAINER = [
    'container_id pod_name runtime_type status session_id template_id node_name resources created_at uptime_seconds',
  ]
  const TEMPLATE = [
    'id name image_url runtime_type default_cpu_cores default_memory_mb default_disk_mb default_env_vars is_active',
  ]

  /** In the order in which they are printed: method, path, what to send, the fields of the answer and some values. */
  const PATHS = [
    ['POST', '/sessions', { id: 'abc-123', template_id: 'python-basic' }, SESSION, { status: 'running' }],
    ['GET', '/sessions/{id}', undefined, SESSION, { id: 'abc-123' }],
    [
      'POST',
      '/sessions/{id}/execute',
      { code: 'print(42)', language: 'python' },
      SUBMITTED,
      { session_id: 'abc-123' },
    ],
    ['GET', '/sessions/{id}/status', undefined, ['id session_id status'], { session_id: 'abc-123' }],
    ['GET', '/sessions/{id}/result', undefined, EXECUTION, { code: 'print(42)' }],
    ['GET', '/containers', undefined, ['containers total'], { total: 1 }],
    ['GET', '/containers/{container}', undefined, CONTAINER, { session_id: 'abc-123' }],
    ['POST', '/templates', { id: 'mine', name: 'Mine', image_url: 'image' }, TEMPLATE, { id: 'mine' }],
  ] as const

  test.each([
    ['its own listener', '', () => `http://${host}`],
    ['its own listener', '/', () => `http://${host}`],
    ['the main one', '', () => server.url],
    ['the main one', '/', () => server.url],
  ])('every path answers on %s, with "%s" at its end, without a key', async (_where, end, base) => {
    const at = `${base()}/api/v1`
    const ids: Record<string, string> = { '{id}': 'abc-123' }
    for (const [method, path, body, fields, values] of PATHS) {
      const data = body ? `-d '${JSON.stringify(body)}'` : ''
      const answer = await json(`curl -X ${method} ${at}${path}${end} ${data}`, ids)
      expect(Object.keys(answer), path).toEqual(expect.arrayContaining(fields.join(' ').split(' ')))
      expect(answer, path).toMatchObject(values)
      if (typeof answer.container_id === 'string') ids['{container}'] ??= answer.container_id
    }
    await eventually(
      () => run(`curl ${at}/containers/{container}/logs${end}`, ids),
      (log) => log.includes('42'),
    )
    const templates = JSON.parse(await run(`curl ${at}/templates${end}`)) as Json[]
    expect(templates.map(({ id }) => id)).toContain('mine')
    expect(await json(`curl ${at}/health${end}`)).toMatchObject({ status: 'healthy' })
    const remove = `curl -o /dev/null -w '%{http_code}' -X DELETE ${at}`
    expect(await run(`${remove}/sessions/{id}${end}`, ids)).toBe('204')
    expect(await json(`curl ${at}/sessions/{id}${end}`, ids)).toMatchObject({
      error_code: 'Sandbox.SessionNotFound',
    })
    expect(await run(`${remove}/templates/mine${end}`)).toBe('204')
  })
})
