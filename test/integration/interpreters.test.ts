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
/** The same in the session, and in a sandbox of its own. */
const everywhere = (request: Omit<Run, 'kernel' | 'fresh' | 'retry'>) =>
  Promise.all([run(request), server.client.execute({ template: 'both', ...request })])

test.each([
  ['python', 'for n in ("stdout", "stderr"):\n  with open("/dev/" + n, "w") as f: f.write(n)'],
  ['javascript', 'for (const n of ["stdout", "stderr"]) require("fs").writeFileSync("/dev/" + n, n)'],
  ['shell', 'for n in stdout stderr; do printf $n > /dev/$n; done'],
] as const)('%s may open its outputs by name', async (language, code) => {
  for (const execution of await everywhere({ language, code }))
    expect(execution).toMatchObject({ status: 'completed', stdout: 'stdout', stderr: 'stderr' })
})

test('a command may open its outputs by name', async () => {
  const command = 'echo a | tee /dev/stderr'
  expect(await server.client.sessions.exec(id, { command })).toMatchObject({ stdout: 'a\n', stderr: 'a\n' })
})

test.each([
  ['python', 'import os; os.system("cat /proc/self/oom_score_adj") and None'],
  ['javascript', 'console.log(require("child_process").execSync("cat /proc/self/oom_score_adj").toString())'],
] as const)('%s goes before its bridge when memory runs out, with what it starts', async (language, code) => {
  expect((await run({ language, code })).stdout.trim()).toBe('1000')
})

test('JavaScript needs no semicolons, and what it imports is no warning', async () => {
  const code = "import { sep } from 'node:path'\nconsole.log(sep)\nconst b = 2\nlet c = await 3\n;(b + c)"
  for (const execution of await everywhere({ language: 'javascript', code }))
    expect(execution).toMatchObject({ status: 'completed', stdout: '/\n', stderr: '', result: 5 })
})

test('a JavaScript handler may call back', async () => {
  const handler = 'exports.handler = (event, context, callback) => setTimeout(() => callback(null, event.a))'
  for (const execution of await everywhere({ language: 'javascript', handler, event: { a: 1 } }))
    expect(execution).toMatchObject({ status: 'completed', result: 1 })
})

test('variables of a run are gone after it', async () => {
  const code = 'import os; os.environ.get("OF_THE_RUN")'
  expect(await run({ code, env: { OF_THE_RUN: 'x' } })).toMatchObject({ result: 'x' })
  expect((await run({ code })).result ?? null).toBe(null)
})

test('files of the workspace named like standard modules do not disturb the interpreter', async () => {
  for (const name of ['re', 'token', 'selectors'])
    await server.client.sessions.exec(id, { command: `echo mine = 1 > ${name}.py` })
  const kernel = 'with-modules'
  expect(await run({ code: '"text"', kernel })).toMatchObject({ status: 'completed', result: 'text' })
  expect(await run({ code: 'import asyncio; await asyncio.sleep(0, 1)', kernel })).toMatchObject({
    result: 1,
  })
  expect((await run({ code: '1 / 0', kernel })).error?.traceback).toMatch(/line 1, in <module>/)
  await server.client.sessions.exec(id, { command: 'rm re.py token.py selectors.py' })
})

test('a cancelled JavaScript loop leaves its kernel, also after an await', async () => {
  await run({ language: 'javascript', code: 'const kept = 1' })
  const code = 'await new Promise((go) => setTimeout(go, 500)); console.log("begun"); while (true) {}'
  const { id: executionId } = await run({ language: 'javascript', code, async: true })
  await eventually(
    () => server.client.executions.get(id, executionId),
    ({ stdout }) => stdout.includes('begun'),
  )
  await server.client.executions.cancel(id, executionId)
  expect(await run({ language: 'javascript', code: 'kept' })).toMatchObject({ result: 1, isNewKernel: false })
})
