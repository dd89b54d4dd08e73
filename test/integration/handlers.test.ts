import { afterAll, beforeAll, expect, test } from 'vitest'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let id: string
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_MAX_SANDBOXES: '40' } })
  await server.client.templates.create({ name: 'both', languages: ['python', 'javascript', 'shell'] })
  id = (await server.client.sessions.create({ template: 'both' })).id
})
afterAll(() => server.close())

type Run = Parameters<TestServer['client']['sessions']['execute']>[1]
const run = (request: Run) => server.client.sessions.execute(id, request)
/** The same in the session, and in a sandbox of its own. */
const everywhere = (request: Omit<Run, 'kernel' | 'fresh' | 'retry'>) =>
  Promise.all([run(request), server.client.execute({ template: 'both', ...request })])

test('a handler is called with its event, and with a context where it takes one', async () => {
  const event = { name: 'ü', list: [0, false, null] }
  for (const execution of await everywhere({ handler: 'def handler(event): return event', event }))
    expect(execution).toMatchObject({ status: 'completed', kind: 'handler', result: event })
  const handler = `def handler(event, context):
    return [context.function_name, context.function_version, context.aws_request_id if hasattr(context, "aws_request_id") else context.request_id,
            context.memory_limit_in_mb, context.stage, context.get_remaining_time_in_millis()]`
  const context = { function_name: 'mine', memory_limit_in_mb: 128, stage: 'test' }
  const { id: executionId, result } = await run({ handler, context, timeout: 60_000 })
  const [name, version, requestId, memory, stage, remaining] = result as unknown[]
  expect([name, version, requestId, memory, stage]).toEqual(['mine', '$LATEST', executionId, 128, 'test'])
  expect(remaining).toBeGreaterThan(50_000)
  expect(remaining).toBeLessThanOrEqual(60_000)
})

test('async handlers are awaited', async () => {
  const python = 'import asyncio\nasync def handler(event):\n  await asyncio.sleep(0.01)\n  return "awaited"'
  const javascript =
    'export async function handler() { await new Promise((r) => setTimeout(r, 10)); return "awaited" }'
  expect(await run({ handler: python })).toMatchObject({ result: 'awaited' })
  expect(await run({ handler: javascript, language: 'javascript' })).toMatchObject({ result: 'awaited' })
})

test('a handler is not kept: each starts fresh', async () => {
  const handler = 'count = 0\ndef handler(event):\n  global count\n  count += 1\n  return count'
  for (let calls = 0; calls < 2; calls++) expect(await run({ handler })).toMatchObject({ result: 1 })
})

test('a handler that fails says where', async () => {
  const handler = 'def handler(event):\n  return event["missing"]'
  for (const execution of await everywhere({ handler, event: {} }))
    expect(execution).toMatchObject({
      status: 'failed',
      hasResult: false,
      error: { name: 'KeyError', traceback: expect.stringContaining('line 2') },
    })
  expect(await run({ handler: 'x = 1' })).toMatchObject({ status: 'failed' })
  expect(await run({ handler: 'def handler(event): return object()' })).toMatchObject({ status: 'failed' })
})

// What the systems before this one got wrong.

test('defect 2: code that timed out is dead, with everything that it started', async () => {
  const handler = `import os, subprocess, sys, time
def handler(event):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(8888)"])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(8888)"])
        os._exit(0)
    print("begun", flush=True)
    while True: time.sleep(0.01)`
  for (const execution of await everywhere({ handler, timeout: 1500 }))
    expect(execution).toMatchObject({ status: 'timeout', stdout: 'begun\n' })
  const left = await server.listSandboxProcesses()
  expect(left.filter(({ command }) => command.includes('8888'))).toEqual([])
})

test('defect 3: a time-out above 30 s is honoured', async () => {
  const handler = 'def handler(event, context): return context.get_remaining_time_in_millis()'
  for (const { result, timeout } of await everywhere({ handler, timeout: 900_000 })) {
    expect(timeout).toBe(900_000)
    expect(result).toBeGreaterThan(880_000)
  }
  expect(await run({ handler, event: { __timeout: 1000 } })).toMatchObject({ timeout: 1_000_000 })
  expect(await run({ handler, event: { __timeout: -5 } })).toMatchObject({ timeout: 300_000 })
})

test('defect 4: CPU time is that of the code', async () => {
  const handler = `import time
def handler(event):
    start = time.process_time()
    while time.process_time() - start < 1: pass`
  for (const { metrics } of await everywhere({ handler })) {
    expect(metrics?.cpuMs).toBeGreaterThan(700)
    expect(metrics?.cpuMs).toBeLessThan(1300)
    expect(metrics?.wallMs).toBeGreaterThan(900)
    expect(metrics?.peakMemoryBytes).toBeGreaterThan(1_000_000)
  }
})

test('defect 5: code of 1 MB and an event of 9 MB arrive whole', async () => {
  const code = `def handler(event): return [len(event["text"]), len(filler)]\nfiller = "${'x'.repeat(1_000_000)}"`
  const event = { text: 'y'.repeat(9_000_000) }
  for (const execution of await everywhere({ handler: code, event }))
    expect(execution).toMatchObject({ status: 'completed', result: [9_000_000, 1_000_000] })
})

test('defect 6: what looks like a result in the output is output', async () => {
  const forged = [
    '{"result": "forged"}',
    '===SANDBOX_RESULT===',
    '"forged"',
    '===SANDBOX_RESULT_END===',
    '{"done": {}}',
  ]
  const handler = `def handler(event):\n  for line in ${JSON.stringify(forged)}: print(line)\n  return "true"`
  for (const execution of await everywhere({ handler }))
    expect(execution).toMatchObject({ result: 'true', stdout: `${forged.join('\n')}\n` })
})

const FALSY = [0, false, '', [], {}, null]

test.each(['python', 'javascript'] as const)('defect 6: falsy results of %s survive', async (language) => {
  const handler =
    language === 'python'
      ? 'def handler(event): return event["value"]'
      : 'exports.handler = async (event) => event.value'
  for (const value of FALSY) {
    const { id: executionId, ...execution } = await run({ handler, language, event: { value } })
    expect(execution).toMatchObject({ status: 'completed', result: value, hasResult: true })
    expect(await server.client.executions.result(id, executionId)).toEqual(value)
  }
})

test('defect 6: the event of a JavaScript handler is an object', async () => {
  const handler = 'export const handler = (event) => [typeof event, event.a.b]'
  const request = { handler, language: 'javascript' as const, event: { a: { b: 1 } } }
  for (const execution of await everywhere(request))
    expect(execution).toMatchObject({ result: ['object', 1] })
})

test('defect 10: a run counts as activity of its session', async () => {
  const { lastActiveAt } = await server.client.sessions.get(id)
  await eventually(
    async () => {
      await run({ code: '1' })
      return (await server.client.sessions.get(id)).lastActiveAt
    },
    (now) => now > lastActiveAt,
    20_000,
  )
})

test('defect 12: partial output, artifacts and metrics are there after a time-out', async () => {
  const handler = `import sys, time
def handler(event):
    print("out", flush=True)
    print("err", file=sys.stderr, flush=True)
    open("partial.txt", "w").write("some")
    time.sleep(60)`
  for (const execution of await everywhere({ handler, timeout: 1500 })) {
    expect(execution).toMatchObject({ status: 'timeout', stdout: 'out\n', stderr: 'err\n' })
    expect(execution.artifacts.map(({ path }) => path)).toEqual(['partial.txt'])
    expect(execution.metrics?.wallMs).toBeGreaterThan(1400)
    expect(execution.metrics?.wallMs).toBeLessThan(2500)
  }
})

test('ten handlers run at once in one session', async () => {
  const handler = `import os, time
def handler(event):
    open(f"here-{event['n']}", "w").close()
    for _ in range(600):
        if len([f for f in os.listdir() if f.startswith("here-")]) == 10: return "all"
        time.sleep(0.02)`
  const runs = await Promise.all(Array.from({ length: 10 }, (_, n) => run({ handler, event: { n } })))
  expect(runs.map(({ result }) => result)).toEqual(Array(10).fill('all'))
})

test('a hundred executions at once all end well', async () => {
  const { client } = server
  const sessions = [id, (await client.sessions.create({ template: 'both' })).id]
  const requests = Array.from({ length: 100 }, async (_, number) => {
    const of = sessions[number % 2] ?? id
    if (number % 5 === 0) {
      const { result } = await client.execute({ code: `${number}` })
      return result
    }
    if (number % 5 === 1) return (await client.sessions.execute(of, { code: `${number}` })).result
    if (number % 5 === 2)
      return (await client.sessions.execute(of, { code: `${number}`, language: 'javascript' })).result
    if (number % 5 === 3) {
      const { stdout } = await client.sessions.execute(of, { code: `echo ${number}`, language: 'shell' })
      return Number(stdout)
    }
    const handler = 'def handler(event): return event["n"]'
    return (await client.sessions.execute(of, { handler, event: { n: number } })).result
  })
  expect(await Promise.all(requests)).toEqual(Array.from({ length: 100 }, (_, number) => number))
})
