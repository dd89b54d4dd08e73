import { createHash, randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type PackageIndex, startPackageIndex } from './support/package-index.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let index: PackageIndex
beforeAll(async () => {
  index = await startPackageIndex()
  server = await startTestServer({ env: { ASH_PIP_INDEX_URL: index.pipUrl, ASH_MAX_SANDBOXES: '8' } })
})
afterAll(async () => {
  await server.close()
  await index.close()
})

type Json = Record<string, unknown>

interface Answer {
  status: number
  headers: Headers
  text: string
  body: Json
}

async function call(
  method: string,
  path: string,
  body?: object | FormData,
  key = server.apiKey,
): Promise<Answer> {
  const isForm = body instanceof FormData
  const reply = await fetch(`${server.url}/api/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body && !isForm && { 'content-type': 'application/json' }),
    },
    ...(body && { body: isForm ? body : JSON.stringify(body) }),
  })
  const text = await reply.text()
  const isJson = reply.headers.get('content-type')?.startsWith('application/json')
  return {
    status: reply.status,
    headers: reply.headers,
    text,
    body: isJson ? (JSON.parse(text) as Json) : {},
  }
}

/** Of another tenant, which the API has no way to make yet. */
function strangerKey(): string {
  const key = `ash_${randomUUID()}`
  using db = new DatabaseSync(join(server.dataDir, 'ash.db'), { timeout: 5_000 })
  db.prepare('insert into api_keys (id, tenant_id, key_hash, label, created_at) values (?, ?, ?, ?, ?)').run(
    randomUUID(),
    'acme',
    createHash('sha256').update(key).digest('hex'),
    'test',
    Date.now(),
  )
  return key
}

const get = (path: string) => call('GET', path)
const post = (path: string, body?: object | FormData) => call('POST', path, body)

async function create(request: object = {}): Promise<string> {
  const { status, body } = await post('/sessions', { template_id: 'python', ...request })
  expect(status, JSON.stringify(body)).toBe(201)
  return body.id as string
}

/** Python that asks the index for a path, by the way that leads out of the sandbox. */
const reach = (path: string) =>
  `import os, urllib.request as r; os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""; r.urlopen("http://${index.host}${path}")`

const runSync = (id: string, request: object, query = '') =>
  post(`/sessions/${id}/execute-sync${query}`, request)

const finished = (path: string) =>
  eventually(
    () => get(path),
    ({ body }) => !['pending', 'running'].includes(String(body.status)),
  )

describe('sessions', () => {
  test('are made with the id that the client chose, and called by it from then on', async () => {
    const made = await post('/sessions', {
      id: 'report-7',
      template_id: 'python',
      timeout: 60,
      cpu: '1',
      memory: '512Mi',
      disk: '1Gi',
      env_vars: { TOKEN: 'secret' },
    })
    expect(made.status).toBe(201)
    expect(made.body).toMatchObject({
      id: 'report-7',
      template_id: 'python',
      status: 'running',
      mode: 'persistent',
      resource_limit: { cpu: '1', memory: '512Mi', disk: '1Gi' },
      workspace_path: '/workspace',
      language_runtime: 'python',
      runtime_type: 'bwrap',
      env_vars: { TOKEN: '***' },
      timeout: 60,
      requested_dependencies: [],
      dependency_install_status: 'completed',
      completed_at: null,
      container_id: expect.any(String),
    })
    expect(made.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
    expect(Number(made.headers.get('x-process-time'))).toBeGreaterThan(0)
    const taken = await post('/sessions', { id: 'report-7', template_id: 'python' })
    expect([taken.status, taken.body.error_code]).toEqual([409, 'Sandbox.StateConflict'])
    expect((await get('/sessions/report-7')).body).toMatchObject({ id: 'report-7', status: 'running' })
    const { sessions } = await server.client.sessions.list({ template: 'python' })
    const ours = sessions[0]?.id ?? ''
    expect((await get(`/sessions/${ours}`)).body).toMatchObject({ id: 'report-7' })
    for (const _again of [1, 2])
      expect(await post('/sessions/report-7/terminate')).toMatchObject({
        status: 200,
        body: { id: 'report-7', status: 'terminated', completed_at: expect.any(String) },
      })
    expect((await call('DELETE', '/sessions/report-7')).status).toBe(204)
    expect((await get('/sessions/report-7')).status).toBe(404)
    expect((await call('DELETE', '/sessions/report-7')).status).toBe(404)
    expect(await create({ id: 'report-7' })).toBe('report-7')
    await call('DELETE', '/sessions/report-7')
  })

  test('of several asked for at once under one id one is made, and nothing is left of the others', async () => {
    const all = await Promise.all(
      [1, 2, 3].map(() => post('/sessions', { id: 'twin', template_id: 'python' })),
    )
    expect(all.map(({ status }) => status).sort()).toEqual([201, 409, 409])
    expect((await get('/sessions?status=running')).body).toMatchObject({ total: 1, items: [{ id: 'twin' }] })
    await call('DELETE', '/sessions/twin')
  })

  test('have a name of their own where the client chose none', async () => {
    const id = await create()
    expect(id).toMatch(/^sess_\d{8}_[0-9a-f]{16}$/)
    await call('DELETE', `/sessions/${id}`)
  })

  test('are one for an agent that asks again', async () => {
    const request = { mode: 'persistent', agent_id: 'ada' }
    const id = await create(request)
    expect(await create(request)).toBe(id)
    await call('DELETE', `/sessions/${id}`)
  })

  test('keep their name when they are forked', async () => {
    const id = await create()
    const { sessions } = await server.client.sessions.list({ template: 'python' })
    const fork = await server.client.sessions.fork(sessions[0]?.id ?? '')
    expect((await get(`/sessions/${fork.id}`)).body).toMatchObject({ id: fork.id, status: 'running' })
    expect((await get(`/sessions/${id}`)).body).toMatchObject({ id })
    for (const each of [id, fork.id]) await call('DELETE', `/sessions/${each}`)
  })

  test('are listed in pages with their number', async () => {
    const ids = [await create({ mode: 'ephemeral' }), await create({ mode: 'ephemeral' })]
    const page = await get('/sessions?limit=1&status=running&template_id=python')
    expect(page.body).toMatchObject({ total: 2, limit: 1, offset: 0, has_more: true })
    expect(page.body.items).toMatchObject([{ id: ids[1] }])
    const rest = await get('/sessions/?limit=1&offset=1')
    expect(rest.body).toMatchObject({ items: [{ id: ids[0] }], has_more: false })
    for (const id of ids) await call('DELETE', `/sessions/${id}`)
    expect((await get('/sessions?status=running')).body).toMatchObject({ total: 0, items: [] })
  })

  test.each([
    [{}, 422, 'template_id'],
    [{ template_id: 'nothing' }, 400, 'nothing'],
    [{ template_id: 'python', memory: '1GB' }, 422, '512Mi'],
    [{ template_id: 'python', memory: '9000Gi' }, 400, 'memoryMb'],
    [{ template_id: 'python', id: '../x' }, 422, 'id'],
    [{ template_id: 'python', dependencies: [{ name: '--index-url', version: '=http://x' }] }, 422, 'name'],
    [{ template_id: 'python', dependencies: [{ name: 'pandas2.3.3' }] }, 422, 'version'],
    [
      { template_id: 'python', python_package_index_url: 'https://evil.example/' },
      400,
      'python_package_index_url',
    ],
  ])('%j is refused with %i', async (request, status, detail) => {
    const refused = await post('/sessions', request)
    expect(refused).toMatchObject({
      status,
      body: {
        error_code: 'Sandbox.InvalidParameter',
        description: expect.any(String),
        error_detail: expect.stringContaining(detail),
        solution: expect.any(String),
        request_id: refused.headers.get('x-request-id'),
      },
    })
  })

  test('belong to their tenant', async () => {
    const id = await create({ id: 'shared-name' })
    const { body } = await runSync(id, { code: '1', language: 'python' })
    const { container_id: container } = (await get(`/sessions/${id}`)).body
    const key = strangerKey()
    const paths = [
      `/sessions/${id}`,
      `/sessions/${id}/result`,
      `/sessions/${id}/files`,
      `/executions/${body.id}`,
    ]
    for (const path of [...paths, `/containers/${container}`, `/containers/${container}/logs`])
      expect((await call('GET', path, undefined, key)).status, path).toBe(404)
    for (const path of ['/sessions', '/containers'])
      expect((await call('GET', path, undefined, key)).body, path).toMatchObject({ total: 0 })
    expect((await call('DELETE', `/sessions/${id}`, undefined, key)).status).toBe(404)
    const theirs = await call('POST', '/sessions', { id, template_id: 'python', mode: 'ephemeral' }, key)
    expect(theirs).toMatchObject({ status: 201, body: { id } })
    expect((await get(`/sessions/${id}`)).body).toMatchObject({ id, mode: 'persistent' })
    const nobody = await call('GET', `/sessions/${id}`, undefined, 'not-a-key')
    expect([nobody.status, nobody.body.error_code]).toEqual([401, 'Sandbox.Unauthorized'])
    await call('DELETE', `/sessions/${id}`)
  })

  test('have the packages that were asked for, and no way out for what runs in them', async () => {
    const id = await create({ dependencies: [{ name: 'ash-demo', version: '1.0.0' }] })
    expect((await get(`/sessions/${id}`)).body).toMatchObject({
      requested_dependencies: [{ name: 'ash-demo', version: '==1.0.0' }],
      installed_dependencies: [{ name: 'ash-demo', version: '1.0.0' }],
      dependency_install_status: 'completed',
      python_package_index_url: index.pipUrl,
    })
    const { body } = await runSync(id, { code: `import ash_demo\n${reach('/simple/')}`, language: 'python' })
    expect(body).toMatchObject({
      status: 'failed',
      exit_code: 1,
      error_message: expect.stringContaining('HTTP Error 403'),
    })
    expect(index.asked).toContain('/simple/ash-demo/')
    expect(index.asked).not.toContain('/simple/')
    const once = await create({ mode: 'ephemeral', dependencies: [{ name: 'ash-demo', version: '1.0.0' }] })
    const found = await runSync(once, { code: 'import ash_demo\nprint("found")', language: 'python' })
    expect(found.body).toMatchObject({ status: 'completed', stdout: 'found\n' })
    await call('DELETE', `/sessions/${id}`)
  })

  const install = (id: string, name: string) =>
    post(`/sessions/${id}/dependencies/install`, { dependencies: [{ name, version: '1.0.0' }] })

  test('take more packages without a network; what the installer reaches is closed again', async () => {
    const id = await create()
    const isReached = async () =>
      (await runSync(id, { code: reach('/simple/'), language: 'python' })).body.status === 'completed'
    expect(await isReached()).toBe(false)
    // The code of the session can use the opening, as the documentation says, and only that.
    const guest = `import time\nwhile True:\n  try:\n    ${reach('/gate')}\n  except Exception:\n    time.sleep(0.02)`
    const begin = `import subprocess, sys\nsubprocess.Popen([sys.executable, "-c", ${JSON.stringify(guest)}])`
    await runSync(id, { code: begin, language: 'python' })
    const atGate = () => index.asked.filter((path) => path === '/gate').length
    const before = atGate()
    const { status, body } = await install(id, 'ash-demo')
    expect(status, JSON.stringify(body)).toBe(200)
    expect(body.installed_dependencies).toContainEqual(
      expect.objectContaining({ name: 'ash-demo', version: '1.0.0' }),
    )
    expect(atGate()).toBe(before + 1)
    expect(await isReached()).toBe(false)
    expect((await install(id, 'ash-missing')).body.error_code).toBe('Sandbox.DependencyInstallError')
    const afterwards = atGate()
    expect(await isReached()).toBe(false)
    expect(atGate()).toBe(afterwards)
    // In a process of its own: the interpreter that runs began without a place for packages.
    const code = 'def handler(event):\n    import ash_demo\n    return ash_demo.WORD'
    expect((await runSync(id, { code, language: 'python' })).body).toMatchObject({ return_value: 'from pip' })
    const { sessions } = await server.client.sessions.list({ template: 'python' })
    expect(sessions[0]?.network).toBe('none')
    // Seen by all, in whatever words it was asked for.
    const { install: newest } = await server.client.packages.list(sessions[0]?.id ?? '')
    expect(newest).toMatchObject({ status: 'failed', packages: { pip: ['ash-missing==1.0.0'] } })
    await call('DELETE', `/sessions/${id}`)
  })

  test('may be given a network while packages are installed, and keep it', async () => {
    const id = await create()
    const { sessions } = await server.client.sessions.list({ template: 'python' })
    const ours = sessions[0]?.id ?? ''
    const before = index.asked.length
    const installing = install(id, 'ash-demo')
    await eventually(
      () => index.asked.length,
      (asked) => asked > before,
    )
    await server.client.sessions.patch(ours, { network: [index.host] })
    expect((await installing).status).toBe(200)
    expect((await runSync(id, { code: reach('/simple/ash-demo/'), language: 'python' })).body.status).toBe(
      'completed',
    )
    await call('DELETE', `/sessions/${id}`)
  })

  test('take more packages where their template lets them reach the index', async () => {
    await server.client.templates.create({ name: 'reaching', runtime: 'python3', network: [index.host] })
    const id = await create({ template_id: 'reaching' })
    const { status, body } = await install(id, 'ash-demo')
    expect(status, JSON.stringify(body)).toBe(200)
    expect(body.installed_dependencies).toContainEqual(
      expect.objectContaining({ name: 'ash-demo', version: '1.0.0' }),
    )
    const run = await runSync(id, { code: 'import ash_demo\nprint("found")', language: 'python' })
    expect(run.body).toMatchObject({ status: 'completed', stdout: 'found\n' })
    expect((await install(id, 'ash-missing')).status).toBe(422)
    await call('DELETE', `/sessions/${id}`)
    await call('DELETE', '/templates/reaching')
  })
})

describe('executions', () => {
  const HANDLER = 'def handler(event):\n    print("hello")\n    return {"twice": event["n"] * 2}'
  let id: string
  beforeAll(async () => {
    id = await create()
  })
  afterAll(() => call('DELETE', `/sessions/${id}`))

  test.each(['/sessions/ID', '/executions/sessions/ID'])(
    'are submitted at %s and asked for later',
    async (path) => {
      const at = path.replace('ID', id)
      const submitted = await post(`${at}/execute`, {
        code: HANDLER,
        language: 'python',
        event: { n: 21 },
        timeout: 20,
      })
      expect(submitted).toMatchObject({
        status: 201,
        body: { session_id: id, status: 'pending', created_at: expect.any(String) },
      })
      const eid = submitted.body.execution_id as string
      await finished(`/executions/${eid}/status`)
      const whole = {
        id: eid,
        session_id: id,
        status: 'completed',
        code: HANDLER,
        language: 'python',
        timeout: 20,
        exit_code: 0,
        error_message: null,
        stdout: 'hello\n',
        stderr: '',
        return_value: { twice: 42 },
        retry_count: 0,
        artifacts: [],
        metrics: {
          duration_ms: expect.any(Number),
          cpu_time_ms: expect.any(Number),
          peak_memory_mb: expect.any(Number),
        },
      }
      for (const view of [`/executions/${eid}`, `/executions/${eid}/result`, `/sessions/${id}/result`])
        expect(await get(view)).toMatchObject({ status: 200, body: whole })
      expect((await get(`/sessions/${id}/status/`)).body).toMatchObject({ id: eid, status: 'completed' })
      const { body } = await get(`${at}/executions?limit=1`)
      expect(body).toMatchObject({ items: [{ id: eid, session_id: id }], limit: 1, offset: 0 })
    },
  )

  test('are waited for, and keep variables from one to the next', async () => {
    await runSync(id, { code: 'x = 41', language: 'python' })
    const code = 'open("output.csv", "w").write("a")\nimport os\nos.makedirs("logs", exist_ok=True)\nx + 1'
    const { status, body } = await runSync(id, { code, language: 'python' })
    expect(status).toBe(200)
    expect(body).toMatchObject({ status: 'completed', return_value: 42, exit_code: 0 })
    expect(body.artifacts).toMatchObject([
      { path: 'output.csv', size: 1, type: 'artifact', checksum: expect.any(String) },
    ])
    expect(body.execution_time).toBeGreaterThan(0)
  })

  test.each([0, false, '', [], {}, null])('return %j as it is', async (value) => {
    const code = 'def handler(event, context):\n    return event["value"]'
    const { body } = await runSync(id, { code, language: 'python', event: { value } })
    expect(body).toMatchObject({ status: 'completed', return_value: value })
  })

  test('say what failed, where programs say it', async () => {
    const { body } = await runSync(id, { code: '1 / 0', language: 'python' })
    expect(body).toMatchObject({
      status: 'failed',
      exit_code: 1,
      error_message: 'ZeroDivisionError: division by zero',
    })
    expect(body.stderr).toContain('Traceback')
    const shell = await runSync(id, { code: 'echo out; exit 3', language: 'shell' })
    expect(shell.body).toMatchObject({ status: 'failed', exit_code: 3, stdout: 'out\n' })
    const late = await runSync(id, {
      code: 'import time\nprint("begun", flush=True)\ntime.sleep(60)',
      language: 'python',
      timeout: 1,
    })
    expect(late.body).toMatchObject({ status: 'timeout', exit_code: 124, stdout: 'begun\n' })
  })

  test('that take longer than the client waits go on', async () => {
    const code = 'import time\nfor i in range(11): time.sleep(1)\n"done"'
    const late = await runSync(id, { code, language: 'python' }, '?sync_timeout=10&poll_interval=0.5')
    expect(late).toMatchObject({ status: 408, body: { error_code: 'Sandbox.ExecTimeout' } })
    const { body } = await finished(`/sessions/${id}/result`)
    expect(body).toMatchObject({ status: 'completed', return_value: 'done' })
  })

  test('of a session for one leave it as they ended', async () => {
    const once = await create({ mode: 'ephemeral' })
    expect((await get(`/sessions/${once}/status`)).body.error_code).toBe('Sandbox.ExecutionNotFound')
    expect((await runSync(once, { code: 'print(1)', language: 'python' })).body).toMatchObject({
      stdout: '1\n',
    })
    await eventually(
      () => get(`/sessions/${once}`),
      ({ body }) => body.status === 'completed',
    )
    const again = await runSync(once, { code: '1', language: 'python' })
    expect([again.status, again.body.error_code]).toEqual([409, 'Sandbox.StateConflict'])
    expect((await get('/sessions?status=completed&limit=1')).body).toMatchObject({ items: [{ id: once }] })
  })

  test('are refused in the words of the dialect', async () => {
    const refusals = [
      ['POST', `/sessions/${id}/execute`, { code: '', language: 'python' }, 422, 'Sandbox.InvalidParameter'],
      ['POST', `/sessions/${id}/execute`, { code: '1', language: 'cobol' }, 422, 'Sandbox.InvalidParameter'],
      [
        'POST',
        `/sessions/${id}/execute`,
        { code: '1', language: 'javascript' },
        400,
        'Sandbox.InvalidParameter',
      ],
      ['POST', `/sessions/${id}/execute-sync?sync_timeout=1`, { code: '1' }, 422, 'Sandbox.InvalidParameter'],
      ['POST', '/sessions/none/execute', { code: '1', language: 'python' }, 404, 'Sandbox.SessionNotFound'],
      ['GET', '/executions/none', undefined, 404, 'Sandbox.ExecutionNotFound'],
      ['GET', '/nowhere', undefined, 404, 'Sandbox.NotFound'],
    ] as const
    for (const [method, path, body, status, code] of refusals) {
      const refused = await call(method, path, body)
      expect([path, refused.status, refused.body.error_code]).toEqual([path, status, code])
    }
  })
})

describe('files', () => {
  test('are uploaded, listed, read by code and downloaded', async () => {
    const id = await create()
    const form = () => {
      const body = new FormData()
      body.append('file', new Blob(['a,b\n']), 'original.csv')
      return body
    }
    expect(await post(`/sessions/${id}/files/upload?path=data/in.csv`, form())).toMatchObject({
      status: 200,
      body: { session_id: id, file_path: 'data/in.csv', size: 4 },
    })
    expect((await post(`/sessions/${id}/files/upload?path=/workspace/data/`, form())).body).toMatchObject({
      file_path: 'data/original.csv',
    })
    const code = 'print(open("data/in.csv").read(), end="")'
    expect((await runSync(id, { code, language: 'python' })).body).toMatchObject({ stdout: 'a,b\n' })
    const { body } = await get(`/sessions/${id}/files?path=data/`)
    expect(body).toMatchObject({
      session_id: id,
      count: 2,
      files: [
        { name: 'data/in.csv', container_path: '/workspace/data/in.csv', size: 4, etag: expect.any(String) },
        { name: 'data/original.csv' },
      ],
    })
    const file = await get(`/sessions/${id}/files/data/in.csv`)
    expect([file.status, file.text]).toEqual([200, 'a,b\n'])
    expect(file.headers.get('content-disposition')).toContain('attachment')
    expect((await get(`/sessions/${id}/files/none`)).body).toMatchObject({
      error_code: 'Sandbox.FileNotFound',
    })
    for (const path of ['../out', 'a/../../out', '/etc/../..'])
      expect((await post(`/sessions/${id}/files/upload?path=${path}`, form())).status, path).toBe(400)
    expect((await post(`/sessions/${id}/files/upload?path=x`, { no: 'form' })).status).toBe(415)
    await call('DELETE', `/sessions/${id}`)
  })
})

describe('templates', () => {
  test('are made, read, changed in part and deleted', async () => {
    const made = await post('/templates', {
      id: 'science',
      name: 'Data science',
      image_url: 'sandbox/science:1',
      runtime_type: 'python3',
      default_cpu_cores: 1,
      default_memory_mb: 512,
      default_disk_mb: 1024,
      default_timeout: 120,
      default_env_vars: { MODE: 'test' },
      security_context: { network_enabled: false, max_processes: 64 },
      description: 'For numbers',
    })
    const shown = {
      id: 'science',
      name: 'Data science',
      description: 'For numbers',
      image_url: 'sandbox/science:1',
      runtime_type: 'python3',
      default_cpu_cores: 1,
      default_memory_mb: 512,
      default_disk_mb: 1024,
      default_timeout_sec: 120,
      default_env_vars: { MODE: '***' },
      security_context: { network_enabled: false, max_processes: 64 },
      is_active: true,
    }
    expect(made).toMatchObject({ status: 201, body: shown })
    expect((await get('/templates/science/')).body).toMatchObject(shown)
    const again = await post('/templates', { id: 'science', name: 'x', image_url: 'x' })
    expect([again.status, again.body.error_code]).toEqual([409, 'Sandbox.StateConflict'])
    const changed = await call('PUT', '/templates/science', { default_memory_mb: 256 })
    expect(changed).toMatchObject({ status: 200, body: { ...shown, default_memory_mb: 256 } })
    const id = await create({ template_id: 'science' })
    const code = 'import os\nos.environ["MODE"]'
    expect((await runSync(id, { code, language: 'python' })).body).toMatchObject({ return_value: 'test' })
    expect((await call('DELETE', '/templates/science')).status).toBe(400)
    await call('DELETE', `/sessions/${id}`)
    expect((await call('DELETE', '/templates/science')).status).toBe(204)
    expect((await get('/templates/science')).body).toMatchObject({ error_code: 'Sandbox.TemplateNotFound' })
    expect((await call('PUT', '/templates/science', {})).status).toBe(404)
    const all = JSON.parse((await get('/templates?limit=2&offset=1')).text) as { id: string }[]
    expect(all.map((template) => template.id)).toEqual(['python', 'shell'])
  })

  test('of the platform itself stand for those built in', async () => {
    const id = await create({ template_id: 'python-basic', mode: 'ephemeral' })
    expect((await get(`/sessions/${id}`)).body).toMatchObject({ template_id: 'python' })
    await call('DELETE', `/sessions/${id}`)
  })
})

describe('containers and health', () => {
  test('a container is the sandbox of a session, with what it said', async () => {
    const id = await create()
    await runSync(id, { code: 'print("one\\ntwo\\nthree")', language: 'python' })
    const { container_id: container } = (await get(`/sessions/${id}`)).body
    const { body } = await get('/containers?status=running')
    const [found] = (body.containers as Json[]).filter((each) => each.container_id === container)
    expect(found).toMatchObject({
      session_id: id,
      status: 'running',
      runtime_type: 'bwrap',
      template_id: 'python',
      resources: { cpu: expect.any(String) },
      uptime_seconds: expect.any(Number),
    })
    expect((await get(`/containers/${container}`)).body).toMatchObject({ container_id: container })
    const logs = await get(`/containers/${container}/logs?tail=2`)
    expect([logs.headers.get('content-type'), logs.text]).toEqual([
      'text/plain; charset=utf-8',
      'two\nthree\n',
    ])
    expect((await get(`/containers/${container}/logs?since=2100-01-01T00:00:00Z`)).text).toBe('')
    expect((await get('/containers?status=failed')).body).toMatchObject({ containers: [], total: 0 })
    expect((await get('/containers/none')).status).toBe(404)
    await call('DELETE', `/sessions/${id}`)
  })

  test('health needs no key, what it stands on does', async () => {
    for (const path of ['/health', '/health/']) {
      const reply = await fetch(`${server.url}/api/v1${path}`)
      expect(reply.status, path).toBe(200)
      expect(await reply.json()).toEqual({
        status: 'healthy',
        version: expect.any(String),
        uptime: expect.any(Number),
      })
    }
    for (const path of ['/health/detailed', '/health/sync'])
      expect((await fetch(`${server.url}/api/v1${path}`)).status, path).toBe(401)
  })

  test('health names what Ash stands on', async () => {
    expect((await get('/health')).body).toMatchObject({ status: 'healthy', version: expect.any(String) })
    expect((await get('/health/detailed')).body).toMatchObject({
      status: 'healthy',
      dependencies: { database: 'healthy', storage: 'healthy', runtime_nodes: 'healthy' },
    })
    expect((await post('/health/sync')).body).toMatchObject({ status: 'success' })
  })

  test('the API document has one vocabulary', async () => {
    const reply = await fetch(`${server.url}/openapi.json`)
    const { paths } = (await reply.json()) as { paths: Json }
    expect(Object.keys(paths).filter((path) => path.startsWith('/api/v1'))).toEqual([])
  })
})
