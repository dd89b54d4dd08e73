import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Duplex } from 'node:stream'
import {
  AshError,
  type BridgeCommand,
  type BridgeEvent,
  encodeLine,
  isAshError,
  MAX_RESULT_BYTES,
  MAX_RUN_OUTPUT_BYTES,
  type OutputPiece,
  type RunRequest,
} from '@ash-ai/shared'
import { afterEach, expect, onTestFinished, test, vi } from 'vitest'
import { BridgeClient } from '../bridge-client.ts'
import type { Enclosure } from '../limits/enclosure.ts'
import { connectBridge } from '../testing/bridge-pair.ts'
import { tempDir } from '../testing/temp-dir.ts'
import { BridgeInterpreter } from './bridge-interpreter.ts'

const BRIDGE = join(import.meta.dirname, '../../../bridge/src/main.ts')
const CODE: RunRequest = { kind: 'code', code: '', timeoutMs: 10_000 }
const SCRIPT: RunRequest = { ...CODE, kind: 'script' }

afterEach(() => {
  vi.useRealTimers()
})

/** The bridge itself, in a process of its own, without a sandbox around it. */
async function startBridge(enclosure?: Enclosure) {
  const dir = await tempDir()
  const child = spawn(process.execPath, ['--conditions=development', BRIDGE], {
    cwd: dir,
    stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
    env: {
      PATH: '/usr/bin:/bin',
      HOME: dir,
      ASH_BRIDGE_FD: '3',
      ASH_WORKSPACE_DIR: dir,
      ASH_MODEL_SOCKET: join(dir, 'model.sock'),
      ASH_EGRESS_SOCKET: join(dir, 'egress.sock'),
      ASH_CLAUDE: '/bin/cat',
    },
  })
  const bridge = new BridgeClient(child.stdio[3] as Duplex)
  onTestFinished(() => {
    bridge.close(new AshError('sandbox_died', 'the test is over'))
    child.kill('SIGKILL')
  })
  await bridge.ready
  await bridge.call({ cmd: 'configure', session: { sessionId: 's', env: { OWN: 'value' }, modelToken: 't' } })
  return { bridge, enclose: async () => enclosure, dir }
}

async function run(interpreter: BridgeInterpreter, request: RunRequest) {
  const pieces: OutputPiece[] = []
  const outcome = await interpreter.run(request, (piece) => void pieces.push(piece))
  return { ...outcome, output: pieces.map(({ text }) => text).join('') }
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'none',
    (error: unknown) => (isAshError(error) ? error.code : error),
  )

/** Stands for a control group, and tells what was asked of it. */
function fakeEnclosure(cpuMs: number[] = []): Enclosure & { asked: string[] } {
  const asked: string[] = []
  return {
    asked,
    cpuMs: () => cpuMs.shift() ?? 0,
    kill: async () => void asked.push('kill'),
    remove: async () => void asked.push('remove'),
  }
}

test('code gives its output and results, and keeps what it knows', async () => {
  const sandbox = await startBridge()
  const python = await BridgeInterpreter.start(sandbox, 'python', { MORE: 'too' })
  expect(
    await run(python, { ...CODE, code: 'import os; x = 1; print(os.environ["OWN"], os.environ["MORE"])' }),
  ).toMatchObject({
    status: 'completed',
    output: 'value too\n',
    results: [],
    truncated: false,
    isOver: false,
  })
  const { result, results } = await run(python, { ...CODE, code: '["grüße\\r\\n" * 100_000, x]' })
  expect(JSON.parse(result ?? '')).toEqual(['grüße\r\n'.repeat(100_000), 1])
  expect(results).toMatchObject([{ isValue: true, data: { 'text/plain': expect.any(String) } }])
})

test('a handler answers and is over, and its enclosure cleared away', async () => {
  const enclosure = fakeEnclosure([100, 107])
  const python = await BridgeInterpreter.start(await startBridge(enclosure), 'python')
  const outcome = await run(python, {
    kind: 'handler',
    code: 'def handler(event): return event["a"]',
    event: '{"a": [false, 2]}',
    timeoutMs: 10_000,
  })
  expect(outcome).toMatchObject({ status: 'completed', isOver: true, metrics: { cpuMs: 7 } })
  expect(JSON.parse(outcome.result ?? '')).toEqual([false, 2])
  expect(enclosure.asked).toEqual(['kill', 'remove'])
  expect(python.isOver).toBe(true)
  expect(await codeOf(run(python, CODE))).toBe('interpreter_gone')
})

test('an interrupt keeps the interpreter, a stop ends it', async () => {
  const sandbox = await startBridge()
  const python = await BridgeInterpreter.start(sandbox, 'python')
  const begun = join(sandbox.dir, 'begun')
  const sleeping = run(python, { ...CODE, code: `open("${begun}", "w"); import time; time.sleep(1000)` })
  await expect.poll(() => existsSync(begun), { timeout: 5_000 }).toBe(true)
  await python.interrupt()
  expect(await sleeping).toMatchObject({ status: 'cancelled', isOver: false })
  const again = run(python, { ...CODE, code: 'import time; time.sleep(1000)' })
  await python.stop()
  expect(await again).toMatchObject({ status: 'cancelled', isOver: true })
  await python.stop()
  await python.interrupt()
})

test('a time-out leaves nothing alive, and partial output', async () => {
  const sandbox = await startBridge()
  const shell = await BridgeInterpreter.start(sandbox, 'shell')
  const code = 'echo begun; (setsid sh -c "echo \\$\\$ > daemon; exec sleep 1000" &); sleep 1000'
  expect(await run(shell, { ...SCRIPT, code, timeoutMs: 500 })).toMatchObject({
    status: 'timeout',
    output: 'begun\n',
    isOver: true,
  })
  const pid = Number(await readFile(join(sandbox.dir, 'daemon'), 'utf8'))
  // Gone, or dead and not collected yet.
  expect(await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') Z')).toContain(') Z')
})

test('a flood arrives cut, while the bridge goes on answering', async () => {
  const sandbox = await startBridge()
  const shell = await BridgeInterpreter.start(sandbox, 'shell')
  const flood = run(shell, { ...SCRIPT, code: 'yes | head -c 30000000', timeoutMs: 30_000 })
  await sandbox.bridge.run({ cmd: 'ping' })
  const outcome = await flood
  expect(outcome).toMatchObject({ status: 'completed', truncated: true })
  expect(outcome.output.length).toBe(MAX_RUN_OUTPUT_BYTES)
})

test('what fails at its start is an error', async () => {
  const sandbox = await startBridge()
  expect(await codeOf(BridgeInterpreter.start(sandbox, 'python', { PATH: '/none' }))).toBe(
    'interpreter_missing',
  )
  const enclose = () => Promise.reject(new AshError('interpreter_gone', 'no'))
  expect(await codeOf(BridgeInterpreter.start({ ...sandbox, enclose }, 'shell'))).toBe('interpreter_gone')
})

test('a taker that fails fails the run, and ends the interpreter', async () => {
  const shell = await BridgeInterpreter.start(await startBridge(), 'shell')
  const failing = shell.run({ ...SCRIPT, code: 'echo; sleep 1000' }, () =>
    Promise.reject(new Error('disk full')),
  )
  await expect(failing).rejects.toThrow('disk full')
  expect(shell.isOver).toBe(true)
})

const OUTCOME = {
  status: 'completed',
  truncated: false,
  isOver: false,
  metrics: { wallMs: 1, cpuMs: 1, peakMemoryBytes: 1, ioReadBytes: 1, ioWriteBytes: 1 },
}

/** A bridge that answers an `execute` with these events, and everything else as it should. */
async function startHostile(answer: (id: string) => BridgeEvent[], enclosure?: Enclosure) {
  const { client, bridge } = await connectBridge()
  const asked: BridgeCommand['cmd'][] = []
  createInterface({ input: bridge }).on('line', (line) => {
    const { cmd, id } = JSON.parse(line) as BridgeCommand
    asked.push(cmd)
    const data = cmd === 'start' ? { interpreter: 'i', pid: 5 } : {}
    const events: Exclude<BridgeEvent, { ev: 'message' }>[] =
      cmd === 'execute' ? (answer(id) as typeof events) : [{ ev: 'result', id, data }]
    for (const event of events) bridge.write(encodeLine(event))
  })
  const interpreter = await BridgeInterpreter.start(
    { bridge: client, enclose: async () => enclosure },
    'python',
  )
  return { interpreter, asked, client }
}

const output = (stream: 'result' | 'display' | 'stdout', data: string) => (id: string) =>
  ({ ev: 'output', id, stream, data }) as const

test.each([
  ['a result without end', output('result', 'x'.repeat(MAX_RESULT_BYTES / 2 + 1))],
  ['a display that is none', output('display', '{"display":1}')],
  ['something else than a display', output('display', '{"ready":true}')],
  ['a display that is not JSON', output('display', '{')],
])('%s is not believed, and the interpreter stopped', async (_, piece) => {
  const { interpreter, asked } = await startHostile((id) => [
    output('result', '1')(id),
    piece(id),
    piece(id),
    { ev: 'result', id, data: OUTCOME },
  ])
  const outcome = await run(interpreter, CODE)
  expect(outcome).toMatchObject({
    status: 'failed',
    error: { name: 'ResultChannelBroken' },
    results: [],
    isOver: true,
  })
  expect(outcome.result).toBeUndefined()
  expect(asked).toEqual(['start', 'execute', 'stop'])
})

test('output beyond the limit is dropped here, too', async () => {
  const { interpreter } = await startHostile((id) => [
    ...Array.from({ length: 11 }, () => output('stdout', 'x'.repeat(MAX_RUN_OUTPUT_BYTES / 10))(id)),
    { ev: 'result', id, data: OUTCOME },
  ])
  const outcome = await run(interpreter, CODE)
  expect([outcome.output.length, outcome.truncated]).toEqual([MAX_RUN_OUTPUT_BYTES, true])
})

test.each([
  ['nothing', undefined],
  ['an unknown status', { ...OUTCOME, status: 'crashed' }],
  ['no measurements', { ...OUTCOME, metrics: undefined }],
  ['a negative measurement', { ...OUTCOME, metrics: { ...OUTCOME.metrics, cpuMs: -1 } }],
  ['a measurement that is text', { ...OUTCOME, metrics: { ...OUTCOME.metrics, wallMs: '1' } }],
  ['an error that is none', { ...OUTCOME, status: 'failed', error: 'x' }],
  ['a signal that is none', { ...OUTCOME, signal: 'SIG; rm' }],
  ['an exit code that is none', { ...OUTCOME, exitCode: 1.5 }],
  ['no word on its end', { ...OUTCOME, isOver: undefined }],
])('an outcome with %s ends the connection', async (_, data) => {
  const { interpreter, client } = await startHostile((id) => [{ ev: 'result', id, data: data ?? null }])
  expect(await codeOf(run(interpreter, CODE))).toBe('bridge_protocol_error')
  expect([client.isClosed, interpreter.isOver]).toEqual([true, true])
})

test('an outcome has nothing in it that nobody asked for, and no text without end', async () => {
  const error = { name: 'n'.repeat(1e5), message: 'm'.repeat(1e6), traceback: 't'.repeat(1e6) }
  const data = { ...OUTCOME, status: 'failed', error, result: 'forged', results: [1], more: 1 }
  const { interpreter } = await startHostile((id) => [{ ev: 'result', id, data }])
  const outcome = await run(interpreter, CODE)
  expect(Object.keys(outcome).sort()).toEqual(
    ['error', 'isOver', 'metrics', 'output', 'results', 'status', 'truncated'].sort(),
  )
  expect(JSON.stringify(outcome.error).length).toBeLessThan(210 * 1024)
})

test('a bridge that says nothing in time loses what it holds', async () => {
  const enclosure = fakeEnclosure()
  const { interpreter } = await startHostile(() => [], enclosure)
  vi.useFakeTimers()
  const running = codeOf(run(interpreter, { ...CODE, timeoutMs: 1_000 }))
  await vi.advanceTimersByTimeAsync(11_001)
  vi.useRealTimers()
  expect(await running).toBe('bridge_unresponsive')
  expect(enclosure.asked[0]).toBe('kill')
  expect(interpreter.isOver).toBe(true)
})

test('a bridge that goes away fails the run', async () => {
  const { interpreter, client } = await startHostile(() => [])
  const running = codeOf(run(interpreter, CODE))
  client.close(new AshError('sandbox_died', 'gone'))
  expect(await running).toBe('sandbox_died')
  await interpreter.stop()
})
