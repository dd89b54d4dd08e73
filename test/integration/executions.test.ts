import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Execution } from '@ash-ai/shared'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent } from './support/conversation.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let sessionId: string
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_MAX_SANDBOXES: '6' } })
  sessionId = (await server.client.sessions.create({ template: 'python' })).id
})
afterAll(() => server.close())

const run = (request: Parameters<TestServer['client']['sessions']['execute']>[1], id = sessionId) =>
  server.client.sessions.execute(id, request)

async function post(path: string, body: object, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(server.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${server.apiKey}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
}

async function bytesOf(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(chunks))
}

const LOOP = 'import time\nprint("begun", flush=True)\nwhile True: time.sleep(0.05)'

/** Resolves when the code has written something. */
const begun = (id: string) =>
  eventually(
    () => server.client.executions.get(sessionId, id),
    ({ stdout }) => stdout.includes('begun'),
  )

test('one call runs code in a sandbox of its own, of which nothing is left but the log', async () => {
  const execution = await server.client.execute({ code: 'import os\nprint(os.getcwd())\n6 * 7' })
  expect(execution).toMatchObject({
    status: 'completed',
    kind: 'script',
    language: 'python',
    result: 42,
    hasResult: true,
    exitCode: 0,
    stderr: '',
    truncated: false,
    path: 'cold',
    attempt: 1,
    artifacts: [],
  })
  expect(execution.stdout).toBe('/workspace\n')
  const session = await eventually(
    () => server.client.sessions.get(execution.sessionId),
    ({ status }) => status === 'ended',
  )
  expect(session).toMatchObject({ mode: 'ephemeral', template: 'python' })
  expect(await server.client.executions.get(execution.sessionId, execution.id)).toEqual(execution)
  const again = server.client.sessions.execute(execution.sessionId, { code: '1' })
  await expect(again).rejects.toMatchObject({ code: 'session_ended' })
})

test.each([
  ['javascript', 'console.log("js"); await Promise.resolve(7)', { stdout: 'js\n', result: 7 }],
  [
    'shell',
    'echo out; echo err >&2; exit 4',
    { stdout: 'out\n', stderr: 'err\n', exitCode: 4, status: 'failed' },
  ],
] as const)('%s runs without naming a template', async (language, code, expected) => {
  expect(await server.client.execute({ language, code })).toMatchObject({ language, ...expected })
})

test('a session for one run takes one, with the files that were put into it', async () => {
  const { client } = server
  const { id } = await client.sessions.create({ template: 'python', mode: 'ephemeral' })
  await client.files.write(id, 'input.txt', 'from outside')
  const execution = await run(
    { code: 'print(open("input.txt").read())\nopen("new.txt", "w").write("x")' },
    id,
  )
  expect(execution).toMatchObject({ status: 'completed', stdout: 'from outside\n', kind: 'script' })
  expect(execution.artifacts.map(({ path }) => path)).toEqual(['new.txt'])
  await eventually(
    () => client.sessions.get(id),
    ({ status }) => status === 'ended',
  )
})

test('a session for one run refuses a second while the first runs', async () => {
  const { client } = server
  const { id } = await client.sessions.create({ template: 'python', mode: 'ephemeral' })
  const first = await run({ code: LOOP, async: true }, id)
  await expect(run({ code: '1' }, id)).rejects.toMatchObject({ code: 'session_conflict' })
  expect(await client.executions.cancel(id, first.id)).toMatchObject({ status: 'cancelled' })
})

test('a session that ends takes the run in its sandbox along, and one without', async () => {
  for (const mode of ['ephemeral', 'persistent'] as const) {
    const { client } = server
    const { id } = await client.sessions.create({ template: 'python', mode })
    const { id: executionId } = await run({ code: LOOP, async: true }, id)
    const { id: waitingId } =
      mode === 'persistent' ? await run({ code: '1', async: true }, id) : { id: executionId }
    await eventually(
      () => client.executions.get(id, executionId),
      ({ stdout }) => stdout.includes('begun'),
    )
    await client.sessions.end(id)
    for (const each of [executionId, waitingId])
      expect(await client.executions.wait(id, each)).toMatchObject({
        status: 'cancelled',
        error: { name: 'Cancelled', message: expect.stringContaining('ended') },
      })
  }
})

test('a session for one run takes one, also of several that are sent at once', async () => {
  const { id } = await server.client.sessions.create({ template: 'python', mode: 'ephemeral' })
  const settled = await Promise.allSettled(Array.from({ length: 4 }, () => run({ code: '1' }, id)))
  const refused = settled.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
  expect(refused).toHaveLength(3)
  for (const error of refused) expect(error).toMatchObject({ code: 'session_conflict' })
  expect((await server.client.executions.list(id)).executions).toHaveLength(1)
})

test('a session that ends while its run is about to begin runs nothing and leaves no folder', async () => {
  const { client } = server
  for (let round = 0; round < 5; round++) {
    const { id, sessionId: single } = await client.execute({ code: 'open("x", "w").write("x")', async: true })
    await client.sessions.end(single)
    expect(['cancelled', 'completed']).toContain((await client.executions.wait(single, id)).status)
    await eventually(
      () => readdir(join(server.dataDir, 'sandboxes')),
      (folders) => !folders.includes(single),
    )
  }
})

test('an agent session runs code beside its agent', async () => {
  await deployTestAgent(server.client)
  const { id } = await server.client.sessions.create({ agent: 'zebra' })
  expect(await run({ code: 'open("CLAUDE.md").read().splitlines()[0]' }, id)).toMatchObject({
    result: '# Test agent',
  })
  await server.client.sessions.end(id)
})

test('what is not waited for is answered at once and can be asked for later', async () => {
  const reply = await post(`/api/sessions/${sessionId}/execute`, { code: 'print("later")\n[1]', async: true })
  expect(reply.status).toBe(202)
  const { execution } = (await reply.json()) as { execution: Execution }
  expect(['pending', 'running']).toContain(execution.status)
  const ended = await server.client.executions.wait(sessionId, execution.id)
  expect(ended).toMatchObject({ status: 'completed', stdout: 'later\n', result: [1] })
  expect(await server.client.executions.result(sessionId, execution.id)).toEqual([1])
})

test('a stream has the states, the output as it comes, and at the end all of it', async () => {
  const code = 'import time\nfor i in range(3):\n  print(i, flush=True)\n  time.sleep(0.05)\n"end"'
  const events = await Array.fromAsync(server.client.sessions.executeStream(sessionId, { code }))
  expect(events.at(0)).toMatchObject({ type: 'execution', status: 'running' })
  const output = events.filter(({ type }) => type === 'output')
  expect(output.length).toBeGreaterThan(1)
  expect(output.map((event) => ('text' in event ? event.text : '')).join('')).toBe('0\n1\n2\n')
  expect(events.at(-2)).toMatchObject({ type: 'execution', status: 'completed' })
  expect(events.at(-1)).toMatchObject({ type: 'result', execution: { result: 'end', stdout: '0\n1\n2\n' } })
})

test('a result with blanks of any kind between its values is one line of a stream', async () => {
  // By itself no interpreter writes such; code that knows the channel of the results can.
  const code = `import os
for fd in map(int, os.listdir("/proc/self/fd")):
    try: fd > 2 and os.write(fd, b'{"result":[1,\\r2]}\\n')
    except OSError: pass`
  const reply = await post(`/api/sessions/${sessionId}/execute`, { code, fresh: true, stream: true })
  const result = (await reply.text()).split('\n\n').filter(Boolean).at(-1) ?? ''
  expect(result).toMatch(/^event: result\ndata: [^\r\n]+$/)
  expect(JSON.parse(result.slice(result.indexOf('data: ') + 6)).result).toEqual([1, 2])
})

test('a run that was streamed is streamed again from its key, also when it is long over', async () => {
  const idempotencyKey = crypto.randomUUID()
  const stream = () =>
    post(
      `/api/sessions/${sessionId}/execute`,
      { code: 'print("once")', stream: true },
      { 'idempotency-key': idempotencyKey },
    ).then((reply) => reply.text())
  const first = await stream()
  await run({ code: 'print("another")' })
  expect(await stream()).toBe(first)
})

test('two streams of one session each have their own', async () => {
  const streams = ['a', 'b'].map((letter) =>
    server.client.sessions.executeStream(sessionId, {
      code: `import time\nfor _ in range(5):\n  print("${letter}", flush=True)\n  time.sleep(0.02)`,
      fresh: true,
    }),
  )
  const [a, b] = await Promise.all(streams.map((stream) => stream.result()))
  expect([a?.stdout, b?.stdout]).toEqual(['a\n'.repeat(5), 'b\n'.repeat(5)])
})

test('a client that leaves does not stop the run, and finds all of it when it comes back', async () => {
  const leaving = new AbortController()
  const key = crypto.randomUUID()
  const code = 'import time\nprint("begun", flush=True)\ntime.sleep(0.5)\nprint("end")'
  const stream = server.client.sessions.executeStream(
    sessionId,
    { code },
    { idempotencyKey: key, signal: leaving.signal },
  )
  await expect(async () => {
    for await (const event of stream) if (event.type === 'output') leaving.abort()
  }).rejects.toThrow()
  const again = await run({ code }, sessionId).catch(() => undefined)
  expect(again?.id).not.toBe(stream.id)
  const same = await server.client.sessions
    .executeStream(sessionId, { code }, { idempotencyKey: key })
    .result()
  expect(same).toMatchObject({ id: stream.id, status: 'completed', stdout: 'begun\nend\n' })
})

test('a request repeated with its key is the same execution, another request is refused', async () => {
  const idempotencyKey = crypto.randomUUID()
  const code = 'import random\nrandom.random()'
  const execute = (text = code) =>
    server.client.sessions.execute(sessionId, { code: text }, { idempotencyKey })
  const all = await Promise.all([execute(), execute(), execute()])
  const later = await execute()
  expect(new Set([...all, later].map(({ id }) => id)).size).toBe(1)
  expect(new Set([...all, later].map(({ result }) => result)).size).toBe(1)
  await expect(execute('2')).rejects.toMatchObject({ code: 'idempotency_conflict' })
})

test('a key makes one session of a single run, however often it is sent', async () => {
  const idempotencyKey = crypto.randomUUID()
  const execute = () => server.client.execute({ code: 'print("once")' }, { idempotencyKey })
  const all = [...(await Promise.all([execute(), execute()])), await execute()]
  expect(new Set(all.map(({ id, sessionId: of }) => `${id} ${of}`)).size).toBe(1)
  await expect(server.client.execute({ code: 'print("twice")' }, { idempotencyKey })).rejects.toMatchObject({
    code: 'idempotency_conflict',
  })
})

test('a list has the newest first, in pages, by status, without what is large', async () => {
  const { id } = await server.client.sessions.create({ template: 'python' })
  const ids: string[] = []
  for (const code of ['1', '1/0', '3']) ids.push((await run({ code }, id)).id)
  const first = await server.client.executions.list(id, { limit: 2 })
  expect(first.executions.map((each) => each.id)).toEqual([ids[2], ids[1]])
  expect(first.executions[0]).not.toHaveProperty('stdout')
  const rest = await server.client.executions.list(id, { limit: 2, cursor: first.nextCursor })
  expect(rest).toMatchObject({ executions: [{ id: ids[0], hasResult: true }] })
  expect(rest.nextCursor).toBeUndefined()
  const failed = await server.client.executions.list(id, { status: 'failed' })
  expect(failed.executions.map((each) => each.id)).toEqual([ids[1]])
  await server.client.sessions.end(id)
})

test('an execution is its session’s: neither another session nor another id finds it', async () => {
  const { id } = await run({ code: '1' })
  const other = (await server.client.sessions.create({ template: 'shell' })).id
  await expect(server.client.executions.get(other, id)).rejects.toMatchObject({ code: 'execution_not_found' })
  await expect(server.client.executions.get(sessionId, crypto.randomUUID())).rejects.toMatchObject({
    code: 'execution_not_found',
  })
  await server.client.sessions.end(other)
})

test('a language that the session does not have is refused before anything runs', async () => {
  await expect(run({ code: '1', language: 'javascript' })).rejects.toMatchObject({
    code: 'interpreter_missing',
    message: expect.stringContaining('python'),
  })
})

test('what is too large, or not one run, is refused', async () => {
  const event = { text: 'x'.repeat(10 * 1024 * 1024) }
  await expect(run({ handler: 'def handler(event): pass', event })).rejects.toMatchObject({
    code: 'payload_too_large',
  })
  for (const body of [
    {},
    { code: '1', handler: 'x' },
    { code: '' },
    { code: 'a\0' },
    { code: '1', timeout: 0 },
  ]) {
    const reply = await post(`/api/sessions/${sessionId}/execute`, body)
    expect(await reply.json()).toMatchObject({ code: 'validation_failed' })
  }
})

test('variables of a run are there for it, and are not stored in the clear', async () => {
  const env = { TOKEN: 'a-very-secret-value' }
  const read = 'import os\nprint(len(os.environ["TOKEN"]))'
  expect(await run({ code: read, fresh: true, env })).toMatchObject({ stdout: '19\n' })
  expect(await server.client.execute({ code: read, env })).toMatchObject({ stdout: '19\n' })
  expect(server.log()).not.toContain(env.TOKEN)
})

test('a run that is cancelled while it waits never begins; what it waited for goes on', async () => {
  const first = await run({ code: LOOP, async: true })
  const second = await run({ code: 'never = 1', async: true })
  await begun(first.id)
  expect(await server.client.executions.get(sessionId, second.id)).toMatchObject({ status: 'pending' })
  await expect(server.client.executions.result(sessionId, second.id)).rejects.toMatchObject({
    code: 'execution_unfinished',
  })
  expect(await server.client.executions.cancel(sessionId, second.id)).toMatchObject({ status: 'cancelled' })
  expect(await server.client.executions.get(sessionId, first.id)).toMatchObject({ status: 'running' })
  expect(await server.client.executions.cancel(sessionId, first.id)).toMatchObject({
    status: 'cancelled',
    stdout: 'begun\n',
    error: { name: 'Cancelled' },
  })
  await expect(server.client.executions.cancel(sessionId, first.id)).rejects.toMatchObject({
    code: 'execution_finished',
  })
  expect(await run({ code: '"never" in globals()' })).toMatchObject({ result: false, isNewKernel: false })
})

test('a fresh run is cancelled with everything that it started', async () => {
  const code = `import subprocess, sys\nsubprocess.Popen([sys.executable, "-c", "import time; time.sleep(7777)"])\n${LOOP}`
  const { id } = await run({ code, fresh: true, async: true })
  await begun(id)
  expect(await server.client.executions.cancel(sessionId, id)).toMatchObject({ status: 'cancelled' })
  const left = await server.listSandboxProcesses()
  expect(left.filter(({ command }) => command.includes('7777'))).toEqual([])
})

test('artifacts are the files that the run made or changed, and nothing else', async () => {
  await run({ code: 'open("old.txt", "w").write("old"); open("kept.txt", "w").write("kept")' })
  const code =
    'import os\nopen("old.txt", "a").write("er")\nos.mkdir("deep")\nopen("deep/new.json", "w").write("{}")\nopen(".hidden", "w").write("x")'
  const { id, artifacts, artifactsComplete } = await run({ code })
  expect(artifactsComplete).toBe(true)
  expect(artifacts.map(({ path, size, mimeType, isKept }) => [path, size, mimeType, isKept])).toEqual([
    ['deep/new.json', 2, 'application/json', true],
    ['old.txt', 5, 'text/plain', true],
  ])
  await run({ code: 'open("old.txt", "w").write("another")' })
  const bytes = await bytesOf(await server.client.executions.download(sessionId, id, 'old.txt'))
  expect(bytes.toString()).toBe('older')
  expect(artifacts[1]?.sha256).toBe(createHash('sha256').update(bytes).digest('hex'))
  const listed = await server.client.executions.artifacts(sessionId, { limit: 2 })
  expect(listed.artifacts.map(({ path, executionId }) => [path, executionId === id])).toEqual([
    ['old.txt', false],
    ['deep/new.json', true],
    ['old.txt', true],
  ])
})

test('a download is never shown as a page, and a file that is not there is named', async () => {
  const { id } = await run({
    code: 'open("page.html", "w").write("<script>1</script>"); open("ü ü.txt", "w").write("")',
  })
  const path = `/api/sessions/${sessionId}/executions/${id}/artifacts`
  const headers = { authorization: `Bearer ${server.apiKey}` }
  const page = await fetch(`${server.url}${path}/page.html`, { headers })
  expect(Object.fromEntries(page.headers)).toMatchObject({
    'content-type': 'application/octet-stream',
    'content-disposition': "attachment; filename*=UTF-8''page.html",
    'x-content-type-options': 'nosniff',
  })
  expect(await page.text()).toBe('<script>1</script>')
  const empty = await fetch(`${server.url}${path}/${encodeURIComponent('ü ü.txt')}`, { headers })
  expect([empty.status, await empty.text()]).toEqual([200, ''])
  for (const missing of ['nothing.txt', '..%2f..%2fash.db', 'kept.txt']) {
    const reply = await fetch(`${server.url}${path}/${missing}`, { headers })
    expect(await reply.json()).toMatchObject({ code: 'artifact_not_found' })
  }
})

test('artifacts of a session that has ended can still be had', async () => {
  const execution = await server.client.execute({ code: 'open("result.csv", "w").write("1,2")' })
  await eventually(
    () => server.client.sessions.get(execution.sessionId),
    ({ status }) => status === 'ended',
  )
  const chunks = await server.client.executions.download(execution.sessionId, execution.id, 'result.csv')
  expect((await bytesOf(chunks)).toString()).toBe('1,2')
})

test('a pool without room refuses who waits, keeps nothing of it, and lets others wait for room', async () => {
  const { client } = server
  const before = (await client.sessions.list()).sessions.length
  const held = await Promise.all(Array.from({ length: 5 }, () => client.execute({ code: LOOP, async: true })))
  const kernel = await run({ code: LOOP, async: true })
  for (const { sessionId: of, id } of [...held, { sessionId, id: kernel.id }])
    await eventually(
      () => client.executions.get(of, id),
      ({ stdout }) => stdout.includes('begun'),
    )
  await expect(client.execute({ code: '1' })).rejects.toMatchObject({ code: 'pool_full' })
  const reply = await post('/api/execute', { code: '1' })
  expect(Number(reply.headers.get('retry-after'))).toBeGreaterThan(0)
  expect((await client.sessions.list()).sessions.length).toBe(before + 5)
  const patient = await client.execute({ code: '"patient"', async: true })
  for (const { sessionId: of, id } of held) await client.executions.cancel(of, id)
  await client.executions.cancel(sessionId, kernel.id)
  expect(await client.executions.wait(patient.sessionId, patient.id)).toMatchObject({ result: 'patient' })
})

test('a paused session wakes for a run, without the variables it had', async () => {
  const { id } = await server.client.sessions.create({ template: 'python' })
  expect(await run({ code: 'x = 1\nopen("x", "w").write("1")' }, id)).toMatchObject({ path: 'reuse' })
  await server.client.sessions.pause(id)
  expect(await run({ code: 'x' }, id)).toMatchObject({ status: 'completed', result: 1 })
  await server.client.sessions.stop(id)
  const cold = await run({ code: 'import os\n[os.path.exists("x"), "x" in globals()]' }, id)
  expect(cold).toMatchObject({ result: [true, false], isNewKernel: true, path: 'cold' })
  await server.client.sessions.end(id)
})

test('a session that does not wake by itself refuses runs while it is paused', async () => {
  const { id } = await server.client.sessions.create({ template: 'python', autoResume: false })
  await server.client.sessions.pause(id)
  await expect(run({ code: '1' }, id)).rejects.toMatchObject({ code: 'session_paused' })
  await server.client.sessions.resume(id)
  expect(await run({ code: '1' }, id)).toMatchObject({ result: 1 })
  await server.client.sessions.end(id)
})

test('metrics count executions by outcome', async () => {
  const reply = await fetch(`${server.url}/metrics`, {
    headers: { authorization: `Bearer ${server.apiKey}` },
  })
  const text = await reply.text()
  expect(text).toMatch(/ash_executions_total\{status="completed",language="python",path="reuse"\} [1-9]/)
  expect(text).toMatch(/ash_executions_total\{status="cancelled",language="python"/)
  expect(text).toMatch(/ash_execution_seconds_count [1-9]/)
  expect(text).toMatch(/ash_execution_queue \d/)
})
