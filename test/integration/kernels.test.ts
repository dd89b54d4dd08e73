import { afterAll, beforeAll, expect, test } from 'vitest'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let id: string
beforeAll(async () => {
  server = await startTestServer()
  await server.client.templates.create({ name: 'both', languages: ['python', 'javascript', 'shell'] })
  id = (await server.client.sessions.create({ template: 'both' })).id
})
afterAll(() => server.close())

type Run = Parameters<TestServer['client']['sessions']['execute']>[1]
const run = (request: Run) => server.client.sessions.execute(id, request)
const LOOP = 'import time\nprint("begun", flush=True)\nwhile True: time.sleep(0.05)'
const begun = (executionId: string) =>
  eventually(
    () => server.client.executions.get(id, executionId),
    ({ stdout }) => stdout.includes('begun'),
  )

test('a kernel keeps its variables, one for each language and name', async () => {
  expect(await run({ code: 'x = 1' })).toMatchObject({ isNewKernel: true, kernel: 'default', kind: 'code' })
  expect(await run({ code: 'x + 1' })).toMatchObject({ isNewKernel: false, result: 2 })
  expect(await run({ code: 'x', kernel: 'other' })).toMatchObject({
    status: 'failed',
    isNewKernel: true,
    error: { name: 'NameError' },
  })
  expect(await run({ code: 'let x = "js"', language: 'javascript' })).toMatchObject({ status: 'completed' })
  expect(await run({ code: 'x', language: 'javascript' })).toMatchObject({ result: 'js', isNewKernel: false })
  expect(await run({ code: 'x' })).toMatchObject({ result: 1 })
})

test('fresh code does not see the variables of a kernel, nor change them', async () => {
  expect(await run({ code: 'x = 5\nprint(x)', fresh: true })).toMatchObject({ kind: 'script', stdout: '5\n' })
  expect(await run({ code: 'x' })).toMatchObject({ result: 1 })
})

test('kernels can be listed, started ahead, and deleted', async () => {
  expect(await server.client.kernels.create(id, { name: 'ahead' })).toMatchObject({
    name: 'ahead',
    language: 'python',
    state: 'idle',
    runs: 0,
    waiting: 0,
  })
  expect(await run({ code: '1', kernel: 'ahead' })).toMatchObject({ isNewKernel: false })
  const names = (await server.client.kernels.list(id)).map(({ language, name, runs }) => [
    language,
    name,
    runs,
  ])
  expect(names).toEqual(
    expect.arrayContaining([
      ['python', 'ahead', 1],
      ['javascript', 'default', 2],
    ]),
  )
  await server.client.kernels.delete(id, { name: 'ahead' })
  await expect(server.client.kernels.delete(id, { name: 'ahead' })).rejects.toMatchObject({
    code: 'kernel_not_found',
  })
  expect((await server.client.kernels.list(id)).map(({ name }) => name)).not.toContain('ahead')
})

test('a kernel of a language that has none is refused', async () => {
  await expect(server.client.kernels.create(id, { language: 'shell' })).rejects.toMatchObject({
    code: 'interpreter_missing',
  })
})

test('runs of one kernel come one after the other, in the order in which they were sent', async () => {
  const first = await run({ code: 'order = []\nimport time\ntime.sleep(0.2)', async: true })
  const sent: string[] = []
  for (let number = 0; number < 8; number++)
    sent.push((await run({ code: `order.append(${number})`, async: true })).id)
  for (const each of [first.id, ...sent]) await server.client.executions.wait(id, each)
  expect(await run({ code: 'order' })).toMatchObject({ result: [0, 1, 2, 3, 4, 5, 6, 7] })
})

test('an interrupt stops what runs and keeps the variables', async () => {
  const { id: running } = await run({ code: LOOP, async: true })
  const waiting = await run({ code: 'x', async: true })
  await begun(running)
  expect(await server.client.kernels.list(id)).toContainEqual(
    expect.objectContaining({ name: 'default', language: 'python', state: 'busy', waiting: 1 }),
  )
  await server.client.kernels.interrupt(id)
  expect(await server.client.executions.get(id, running)).toMatchObject({
    status: 'cancelled',
    error: { message: 'The kernel was interrupted' },
  })
  expect(await server.client.executions.wait(id, waiting.id)).toMatchObject({ result: 1 })
})

test('code that does not listen to an interrupt loses its kernel', async () => {
  const deaf =
    'import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint("begun", flush=True)\nwhile True: pass'
  const { id: running } = await run({ code: deaf, kernel: 'deaf', async: true })
  await begun(running)
  expect(await server.client.executions.cancel(id, running)).toMatchObject({ status: 'cancelled' })
  expect(await run({ code: '1', kernel: 'deaf' })).toMatchObject({ isNewKernel: true, result: 1 })
})

test('a restart forgets the variables, cancels what runs, and keeps what waits', async () => {
  const { id: running } = await run({ code: LOOP, kernel: 'again', async: true })
  const waiting = await run({ code: '"time" in globals()', kernel: 'again', async: true })
  await begun(running)
  expect(await server.client.kernels.restart(id, { name: 'again' })).toMatchObject({ name: 'again' })
  expect(await server.client.executions.wait(id, running)).toMatchObject({
    status: 'cancelled',
    error: { message: 'The kernel was restarted' },
  })
  expect(await server.client.executions.wait(id, waiting.id)).toMatchObject({ result: false })
})

test('a kernel that is deleted cancels what runs and waits in it', async () => {
  const { id: running } = await run({ code: LOOP, kernel: 'gone', async: true })
  const waiting = await run({ code: '1', kernel: 'gone', async: true })
  await begun(running)
  await server.client.kernels.delete(id, { name: 'gone' })
  for (const each of [running, waiting.id])
    expect(await server.client.executions.wait(id, each)).toMatchObject({
      status: 'cancelled',
      error: { message: 'The kernel was deleted' },
    })
})

test('a kernel that ends with its code is followed by a new one', async () => {
  const ended = await run({
    code: 'import os\nprint("last words", flush=True)\nos._exit(3)',
    kernel: 'exits',
  })
  expect(ended).toMatchObject({ status: 'failed', exitCode: 3, stdout: 'last words\n' })
  expect(await run({ code: '1', kernel: 'exits' })).toMatchObject({ isNewKernel: true, result: 1 })
})

test('a kernel that was killed between two runs is followed by a new one', async () => {
  const { result: pid } = await run({ code: 'import os\nos.getpid()', kernel: 'killed' })
  await run({ code: `kill -9 ${pid}; while kill -0 ${pid} 2>/dev/null; do :; done`, language: 'shell' })
  expect(await run({ code: '1', kernel: 'killed' })).toMatchObject({ isNewKernel: true, result: 1 })
})

test('a session has at most eight kernels', async () => {
  const { client } = server
  const { id: other } = await client.sessions.create({ template: 'python' })
  for (let number = 0; number < 8; number++) await client.kernels.create(other, { name: `k${number}` })
  const ninth = client.sessions.execute(other, { code: '1', kernel: 'k8' })
  await expect(ninth).rejects.toMatchObject({ code: 'too_many_kernels' })
  await client.kernels.delete(other, { name: 'k0' })
  expect(await client.sessions.execute(other, { code: '1', kernel: 'k8' })).toMatchObject({ result: 1 })
  await client.sessions.end(other)
})

test('a kernel that many ask for at once is one kernel', async () => {
  const { client } = server
  const { id: other } = await client.sessions.create({ template: 'python' })
  const [first, ...others] = await Promise.all([
    ...Array.from({ length: 4 }, () => client.kernels.create(other, { name: 'same' })),
    client.sessions.execute(other, { code: 'import os\nos.getpid()', kernel: 'same' }).then(() => undefined),
  ])
  for (const kernel of others) if (kernel) expect(kernel.startedAt).toBe(first?.startedAt)
  expect(await client.kernels.list(other)).toHaveLength(1)
  await client.sessions.end(other)
})

test('of more kernels at once than there may be the last are refused, and nothing of them is kept', async () => {
  const { client } = server
  const { id: other } = await client.sessions.create({ template: 'python' })
  const runs = Array.from({ length: 12 }, (_, number) =>
    client.sessions.execute(other, { code: '1', kernel: `k${number}` }),
  )
  const settled = await Promise.allSettled(runs)
  const refused = settled.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
  expect(refused).toHaveLength(4)
  for (const error of refused) expect(error).toMatchObject({ code: 'too_many_kernels' })
  expect(await client.kernels.list(other)).toHaveLength(8)
  const { executions } = await client.executions.list(other)
  expect(executions.map(({ status }) => status)).toEqual(Array(8).fill('completed'))
  await client.sessions.end(other)
})

/** Leaves a process behind that nothing but its environment ties to the kernel. */
const daemon = (seconds: number) => `import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(${seconds})"], start_new_session=True)`
const daemons = async (seconds: number) =>
  (await server.listSandboxProcesses()).filter(({ command }) => command.includes(String(seconds)))

test('daemons of a kernel live as long as it does: until it is deleted', async () => {
  await run({ code: daemon(6543), kernel: 'left' })
  expect(await run({ code: '1', kernel: 'left' })).toMatchObject({ isNewKernel: false })
  expect(await daemons(6543)).not.toEqual([])
  await server.client.kernels.delete(id, { name: 'left' })
  expect(await daemons(6543)).toEqual([])
})

test('daemons of a kernel live as long as it does: until code in it takes too long', async () => {
  const code = `${daemon(6544)}\nwhile True: pass`
  expect(await run({ code, kernel: 'late', timeout: 1500 })).toMatchObject({ status: 'timeout' })
  expect(await daemons(6544)).toEqual([])
})

test.each([
  ['python', 'kept = 1', 'chunks = []\nwhile True: chunks.append(bytearray(10_000_000))', 'kept'],
  [
    'javascript',
    'var kept = 1',
    'const chunks = []; for (;;) chunks.push(Buffer.alloc(10_000_000, 1))',
    'kept',
  ],
] as const)('a %s kernel survives another that runs out of memory', async (language, keep, eat, show) => {
  const { client } = server
  const { id: small } = await client.sessions.create({ template: 'both', limits: { memoryMb: 400 } })
  const inSmall = (request: Run) => client.sessions.execute(small, { language, ...request })
  await inSmall({ code: keep, kernel: 'survivor' })
  const eaten = await inSmall({ code: eat, kernel: 'glutton', timeout: 60_000 })
  expect(eaten.status).toBe('failed')
  expect(await inSmall({ code: show, kernel: 'survivor' })).toMatchObject({ result: 1, isNewKernel: false })
  expect(await inSmall({ code: '2', kernel: 'glutton' })).toMatchObject({ result: 2 })
  await client.sessions.end(small)
})

test('a kernel has as many waiting as it may, and refuses more', async () => {
  const { id: running } = await run({ code: LOOP, kernel: 'full', async: true })
  await begun(running)
  for (let number = 0; number < 32; number++) await run({ code: '1', kernel: 'full', async: true })
  await expect(run({ code: '1', kernel: 'full' })).rejects.toMatchObject({ code: 'queue_full' })
  await server.client.kernels.delete(id, { name: 'full' })
  expect(await run({ code: '1', kernel: 'full' })).toMatchObject({ result: 1 })
})

test('rich results come back, the value of the last expression marked', async () => {
  const code = `class Chart:
    def _repr_html_(self): return "<b>chart</b>"
Chart()`
  const { results } = await run({ code })
  expect(results).toEqual([{ isValue: true, data: expect.objectContaining({ 'text/html': '<b>chart</b>' }) }])
})
