import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { PreviewClient } from './support/preview-client.ts'
import { runProcess, runServer } from './support/run-process.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let url: string
beforeAll(async () => {
  server = await startTestServer({
    env: { ASH_DIALECT_PORT: '0', ASH_DIALECT_PROVIDER_MAP: 'e2b=bwrap', ASH_MAX_SANDBOXES: '4' },
  })
  url = dialectUrl(server)
})
afterAll(() => server.close())

const dialectUrl = ({ log }: TestServer) => /"dialectUrl":"([^"]+)"/.exec(log())?.[1] ?? ''

type Json = Record<string, unknown>

async function call(method: string, path: string, body?: object): Promise<{ status: number; body: Json }> {
  const reply = await fetch(url + path, {
    method,
    headers: { authorization: `Bearer ${server.apiKey}` },
    // No content type but that of a text.
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: reply.status, body: (await reply.json()) as Json }
}

async function create(request: object = {}): Promise<string> {
  const { status, body } = await call('POST', '/api/sessions', request)
  expect(status, JSON.stringify(body)).toBe(200)
  return body.session_id as string
}

describe('sessions', () => {
  test.each(['/api/sessions', '/api/sessions/'])(
    'are made at %s, run by what there really is',
    async (path) => {
      const request = { environment: 'Python3', provider: 'e2b', agent_config: { type: 'code_executor' } }
      const { status, body } = await call('POST', path, request)
      expect(status).toBe(200)
      expect(body).toMatchObject({
        session_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        sandbox_id: expect.any(String),
        provider: 'bwrap',
        status: 'running',
      })
      const id = body.session_id as string
      const { body: state } = await call('GET', `/api/sessions/${id}/`)
      expect(state).toMatchObject({
        session_id: id,
        provider: 'bwrap',
        state: {},
        status: 'active',
        agent_config: { type: 'code_executor' },
        environment: 'python',
        isolation: 'bwrap',
      })
      expect(await call('DELETE', `/api/sessions/${id}?sandbox_id=${body.sandbox_id}`)).toEqual({
        status: 200,
        body: { status: 'deleted', session_id: id },
      })
      expect(await call('GET', `/api/sessions/${id}`)).toMatchObject({
        status: 200,
        body: { session_id: id, status: 'deleted', state: {} },
      })
    },
  )

  test('have a provider by another name only where the operator says so', async () => {
    const { status, body } = await call('POST', '/api/sessions', { provider: 'docker' })
    expect(status).toBe(503)
    expect(body.detail).toContain('bwrap, not docker')
    expect(body.detail).toContain('ASH_DIALECT_PROVIDER_MAP=docker=bwrap')
  })

  test.each([
    ['PYTHON', 'python'],
    ['Node', 'node'],
    ['python:latest', 'python'],
    ['Mine', 'mINE'],
  ])('in %s are sessions of the template %s', async (environment, template) => {
    if (template === 'mINE') await server.client.templates.create({ name: template, runtime: 'python3' })
    const id = await create({ environment })
    expect(await server.client.sessions.get(id)).toMatchObject({ template })
    await call('DELETE', `/api/sessions/${id}`)
  })

  test('have a state of their own, which code and clients write', async () => {
    const [id, other] = [await create(), await create()]
    const content = Buffer.from('{"step": 1}').toString('base64')
    await call('POST', '/api/e2b/files', { session_id: id, file_path: 'agent/state.json', content })
    const stateOf = async (session: string) => (await call('GET', `/api/sessions/${session}`)).body.state
    expect([await stateOf(id), await stateOf(other)]).toEqual([{ step: 1 }, {}])
    const planted = [
      'open("agent/state.json", "w").write("[1")',
      'open("agent/state.json", "w").write("[1]")',
      'open("agent/state.json", "wb").truncate(2**30)',
      'import os\nos.remove("agent/state.json")\nos.symlink("/etc/passwd", "agent/state.json")',
      'os.remove("agent/state.json")\nos.mkdir("agent/state.json")',
    ]
    for (const code of planted) {
      await call('POST', '/api/e2b/execute', { session_id: id, code })
      expect(await call('GET', `/api/sessions/${id}`), code).toMatchObject({
        status: 200,
        body: { state: null },
      })
    }
    for (const each of [id, other]) await call('DELETE', `/api/sessions/${each}`)
  })

  test('that are deleted leave what their code made, and their log', async () => {
    const id = await create()
    const write = (text: string) =>
      `import os\nos.makedirs("out", exist_ok=True)\nopen("out/a.txt", "w").write("${text}")\nprint("${text}")`
    for (const text of ['first', 'second'])
      await call('POST', '/api/e2b/execute', { session_id: id, code: write(text) })
    await call('POST', '/api/e2b/files', { session_id: id, file_path: 'mine.txt', content: 'YQ==' })
    await call('DELETE', `/api/sessions/${id}`)
    const listed = { name: 'a.txt', path: 'out/a.txt', type: 'file', size: 6 }
    for (const directory of ['', '?directory=/out', '?directory=/workspace/out/'])
      expect((await call('GET', `/api/e2b/files/${id}${directory}`)).body.files).toEqual([listed])
    expect((await call('GET', `/api/e2b/files/${id}?directory=/o`)).body.files).toEqual([])
    expect((await call('GET', `/api/e2b/files/${id}/out/a.txt`)).body).toMatchObject({
      content: Buffer.from('second').toString('base64'),
    })
    expect((await call('GET', `/api/e2b/files/${id}/mine.txt`)).status).toBe(404)
    const late = { session_id: id, file_path: 'x', content: '' }
    expect((await call('POST', '/api/e2b/files', late)).status).toBe(409)
    const lines = await server.client.sandboxes.sessionLogs(id)
    expect(lines.map(({ text }) => text)).toEqual(expect.arrayContaining(['first', 'second']))
  })

  test('are not made of nothing', async () => {
    const none = await call('POST', '/api/sessions', { environment: 'Cobol' })
    expect([none.status, none.body.detail]).toEqual([404, expect.stringContaining('Cobol')])
    for (const path of ['/api/sessions/abc-123', '/api/e2b/files/abc-123'])
      expect((await call('GET', path)).status).toBe(404)
  })
})

describe('code and files', () => {
  let id: string
  beforeAll(async () => {
    id = await create()
  })
  afterAll(() => call('DELETE', `/api/sessions/${id}`))

  const execute = async (code: string, rest: object = {}) =>
    (await call('POST', '/api/e2b/execute', { session_id: id, code, ...rest })).body

  test('code keeps its variables, and says what it made', async () => {
    await execute('x = 41')
    const outcome = await execute('print("out")\nopen("made.txt", "w").write("x")\nx + 1')
    expect(outcome).toMatchObject({ stdout: 'out\n', stderr: '', error: null, artifacts: ['made.txt'] })
    expect(outcome.results).toMatchObject([{ text: '42', is_main_result: true }])
    expect(await execute('1 / 0')).toMatchObject({
      error: {
        name: 'ZeroDivisionError',
        value: 'division by zero',
        traceback: expect.stringContaining('1 / 0'),
      },
    })
    expect(await execute('echo $((6 * 7))', { language: 'bash' })).toMatchObject({ stdout: '42\n' })
    const cobol = await call('POST', '/api/e2b/execute', { session_id: id, code: '1', language: 'cobol' })
    expect(cobol.status).toBe(400)
  })

  test('files go in and come out as base64', async () => {
    const content = Buffer.from('in').toString('base64')
    for (const path of ['in.txt', '/data/in.txt', '/workspace/abs.txt'])
      expect(await call('POST', '/api/e2b/files', { session_id: id, file_path: path, content })).toEqual({
        status: 200,
        body: { status: 'success', file_path: path },
      })
    expect(await execute('print(open("data/in.txt").read())')).toMatchObject({ stdout: 'in\n' })
    const listed = await call('GET', `/api/e2b/files/${id}?directory=/data`)
    expect(listed.body).toMatchObject({
      session_id: id,
      directory: '/data',
      files: [{ name: 'in.txt', size: 2 }],
    })
    expect((await call('GET', `/api/e2b/files/${id}`)).body.files).toContainEqual(
      expect.objectContaining({ name: 'abs.txt', path: 'abs.txt' }),
    )
    expect((await call('GET', `/api/e2b/files/${id}/data/in.txt`)).body).toEqual({
      session_id: id,
      file_path: 'data/in.txt',
      content,
      encoding: 'base64',
    })
    expect((await call('GET', `/api/e2b/files/${id}/none`)).status).toBe(404)
    const out = { session_id: id, file_path: '../../etc/x', content }
    expect((await call('POST', '/api/e2b/files', out)).status).toBe(400)
    expect((await call('POST', '/api/e2b/files', { ...out, content: '%' })).status).toBe(400)
  })

  test('a sandbox has an address where its port 8000, or another, is seen', async () => {
    const serve = 'import subprocess, sys\nsubprocess.Popen([sys.executable, "-m", "http.server", "8000"])'
    await call('POST', '/api/e2b/files', { session_id: id, file_path: 'page.txt', content: 'aGk=' })
    await execute(serve)
    const { body } = await call('GET', `/api/e2b/url/${id}`)
    const preview = new PreviewClient({ url: String(body.url), expiresAt: '' })
    await preview.enter()
    const page = await eventually(
      () => preview.get('/page.txt'),
      ({ status }) => status === 200,
    )
    expect(page.text).toBe('hi')
    const other = await call('GET', `/api/e2b/url/${id}?port=3000`)
    expect(other.body.url).toMatch(new RegExp(`^http://3000-${id}\\.`))
    expect((await call('GET', '/api/e2b/url/abc-123')).status).toBe(404)
  })
})

test('what was given up before is gone', async () => {
  for (const [method, path] of [
    ['POST', 'start'],
    ['POST', 'stop/'],
    ['GET', 'status/abc'],
  ] as const)
    expect(await call(method, `/api/sandbox/${path}`)).toMatchObject({
      status: 410,
      body: { detail: expect.stringContaining('/api/sessions') },
    })
  expect(await call('GET', '/')).toMatchObject({ status: 200, body: { message: expect.any(String) } })
})

test('the listener speaks the other dialect too, and not our own words', async () => {
  const id = await create()
  expect((await call('GET', `/api/v1/sessions/${id}`)).body).toMatchObject({ id, status: 'running' })
  expect((await call('GET', '/api/agents')).status).toBe(404)
  expect((await fetch(`${server.url}/api/e2b/url/${id}`)).status).toBe(401)
  await call('DELETE', `/api/sessions/${id}`)
})

describe('keys', () => {
  test('are needed', async () => {
    for (const path of ['/', '/api/sessions/abc', '/api/v1/sessions'])
      expect((await fetch(url + path)).status, path).toBe(401)
  })

  test('can be off on loopback alone', async () => {
    const { code, output } = await runServer({
      ASH_HOST: '0.0.0.0',
      ASH_DIALECT_PORT: '0',
      ASH_DIALECT_KEYS: 'off',
      ASH_DATA_DIR: '/nonexistent/ash',
    })
    expect(code).toBe(2)
    expect(output).toContain('ASH_DIALECT_KEYS')
  })

  test('that are off let in what comes from this machine, but no web page', async () => {
    const open = await startTestServer({ env: { ASH_DIALECT_PORT: '0', ASH_DIALECT_KEYS: 'off' } })
    try {
      const at = dialectUrl(open)
      const port = new URL(at).port
      const status = async (...args: string[]) => {
        const options = [
          '-s',
          '-o',
          '/dev/null',
          '-w',
          '%{http_code}',
          '-X',
          'POST',
          '-d',
          '{"environment": "x"}',
        ]
        return (await runProcess('curl', [...options, ...args, `${at}/api/sessions`])).stdout
      }
      expect(await status()).toBe('404')
      for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, '[::1]'])
        expect(await status('-H', `Host: ${host}`), host).toBe('404')
      for (const host of [`evil.example:${port}`, 'localhost.evil.example', '127.0.0.1.evil.example'])
        expect(await status('-H', `Host: ${host}`), host).toBe('403')
      for (const origin of [
        'https://evil.example',
        'null',
        `http://evil.example:${port}`,
        'http://localhost:1',
      ])
        expect(await status('-H', `Origin: ${origin}`), origin).toBe('403')
      expect(await status('-H', `Origin: ${at}`)).toBe('404')
      expect(await status('-H', 'Authorization: Bearer wrong')).toBe('401')
      expect(await status('-H', `Authorization: Bearer ${open.apiKey}`)).toBe('404')
      // The other listener asks for a key as ever.
      expect((await fetch(`${open.url}/api/sessions`)).status).toBe(401)
    } finally {
      await open.close()
    }
  })
})
