import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { Duplex } from 'node:stream'
import { describe, expect, onTestFinished, test } from 'vitest'
import {
  INTERRUPT_GRACE_MS,
  type Language,
  MAX_INTERPRETER_LINE_BYTES,
  MAX_RESULTS_BYTES,
  type OutputPiece,
  type RunRequest,
} from './interpreter.ts'
import { interpreterCommand } from './interpreter-command.ts'
import { InterpreterLink, type InterpreterProcess } from './interpreter-link.ts'

const PATHS = { python: '', node: process.execPath, bash: '/bin/bash', kernels: '' }
const READY = `echo '{"ready":true}' >&3; `
const NEXT = 'read -r line <&3; '
const DONE = `echo '{"done":{}}' >&3; `

interface Started {
  link: InterpreterLink
  kills: number
  pid: number
}

/** A process that speaks, well or badly, as the script says; by default as a Python interpreter would. */
function start(script: string, more: Partial<InterpreterProcess> = {}): Started {
  const argv = ['/bin/bash', '-c', script] as const
  return startProgram('python', argv, more)
}

function startShell(): Started {
  return startProgram('shell', interpreterCommand('shell', PATHS))
}

function startProgram(
  language: Language,
  [program, ...args]: readonly [string, ...string[]],
  more: Partial<InterpreterProcess> = {},
): Started {
  const stdio = ['ignore', 'pipe', 'pipe', 'pipe'] as const
  const child = spawn(program, args, { detached: true, stdio: [...stdio], env: { PATH: '/usr/bin:/bin' } })
  const pid = child.pid ?? 0
  const signal = (name: NodeJS.Signals) => {
    try {
      process.kill(-pid, name)
    } catch {
      // All of them are gone.
    }
  }
  const exited = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
    child.once('exit', (code, by) => resolve({ code, signal: by }))
  })
  const started = { kills: 0, pid }
  const link = new InterpreterLink({
    language,
    stdout: child.stdout as Duplex,
    stderr: child.stderr as Duplex,
    channel: child.stdio[3] as Duplex,
    exited,
    async kill() {
      started.kills++
      signal('SIGKILL')
      await exited
    },
    interrupt: () => signal('SIGINT'),
    measure: () => undefined,
    ...more,
  })
  onTestFinished(() => link.stop())
  return Object.assign(started, { link })
}

const CODE: RunRequest = { kind: 'code', code: '', timeoutMs: 10_000 }
const SCRIPT: RunRequest = { ...CODE, kind: 'script' }
const HANDLER: RunRequest = { ...CODE, kind: 'handler' }

async function run({ link }: Started, request: RunRequest = CODE, maxOutputBytes?: number) {
  const pieces: OutputPiece[] = []
  const take = (piece: OutputPiece) => void pieces.push(piece)
  const outcome = await link.run(request, { take, ...(maxOutputBytes !== undefined && { maxOutputBytes }) })
  const text = (name: string) =>
    pieces
      .filter(({ stream }) => stream === name)
      .map((piece) => piece.text)
      .join('')
  return { ...outcome, stdout: text('stdout'), stderr: text('stderr'), pieces }
}

const shell = (code: string, more: Partial<RunRequest> = {}) => run(startShell(), { ...CODE, code, ...more })

describe('runs of an interpreter', () => {
  test('one gives its output, result and displays, and the next follows', async () => {
    const kernel = start(`${READY} for n in 1 2; do ${NEXT} echo out$n; echo err$n >&2
      echo '{"display":{"text/html":"<b>"}}' >&3; echo '{"display":{"text/plain":"7"},"value":true}' >&3
      echo '{"result":[1, "ü"]}' >&3; ${DONE} done; sleep 100`)
    await kernel.link.ready
    for (const n of [1, 2]) {
      const { pieces, metrics, ...outcome } = await run(kernel)
      expect(outcome).toEqual({
        status: 'completed',
        stdout: `out${n}\n`,
        stderr: `err${n}\n`,
        result: '[1, "ü"]',
        results: [
          { isValue: false, data: { 'text/html': '<b>' } },
          { isValue: true, data: { 'text/plain': '7' } },
        ],
        truncated: false,
        isOver: false,
      })
      expect(metrics.wallMs).toBeGreaterThan(0)
    }
  })

  test('the request goes out as one line, its event as the JSON it is', async () => {
    const kernel = start(`${READY} ${NEXT} printf %s "$line"; ${DONE} sleep 100`)
    const request = { ...HANDLER, code: 'a\n"b"', event: '{"n":\n 1.0}', env: { A: 'b' } }
    const { stdout } = await run(kernel, request)
    expect(stdout).toContain('"event":{"n":  1.0}')
    const { event, ...rest } = JSON.parse(stdout).run
    expect({ ...rest, event }).toEqual({ ...request, event: { n: 1 } })
  })

  test('one that is sent before the interpreter is ready is taken when it is', async () => {
    const kernel = start(`sleep 0.1; ${READY} ${NEXT} ${DONE} sleep 100`)
    expect(await run(kernel)).toMatchObject({ status: 'completed' })
  })

  test('an error is an outcome, and the interpreter lives on', async () => {
    const error = { name: 'ValueError', message: 'no', traceback: 'Trace' }
    const kernel = start(`${READY} ${NEXT} echo '{"done":{"error":${JSON.stringify(error)}}}' >&3; sleep 100`)
    expect(await run(kernel)).toMatchObject({ status: 'failed', error, isOver: false })
  })

  test.each([
    [0, 'completed', undefined],
    [3, 'failed', { name: 'Exit', message: 'The code ended with exit code 3' }],
  ])('exit(%i) that the interpreter survives is %s', async (exitCode, status, error) => {
    const kernel = start(`${READY} ${NEXT} echo '{"done":{"exitCode":${exitCode}}}' >&3; sleep 100`)
    const outcome = await run(kernel)
    expect(outcome).toMatchObject({ status, exitCode, isOver: false })
    expect(outcome.error).toEqual(error)
  })

  test('a handler ends with its answer, and everything it left with it', async () => {
    const kernel = start(`${READY} ${NEXT} echo '{"result":0}' >&3; ${DONE} sleep 100`)
    expect(await run(kernel, HANDLER)).toMatchObject({ status: 'completed', result: '0', isOver: true })
    expect(kernel.kills).toBe(1)
    await expect(run(kernel)).rejects.toMatchObject({ code: 'interpreter_gone' })
  })

  test.each([
    ['exit 0', 'completed', { exitCode: 0 }],
    ['exit 4', 'failed', { exitCode: 4, error: { name: 'Exit' } }],
    ['kill -SEGV $$', 'failed', { signal: 'SIGSEGV', error: { name: 'Killed' } }],
  ])('a program that goes on after its answer and ends with `%s` is %s', async (end, status, more) => {
    const kernel = start(`${READY} ${NEXT} ${DONE} exec 3>&-; sleep 0.3; echo late; ${end}`)
    expect(await run(kernel, SCRIPT)).toMatchObject({ status, stdout: 'late\n', isOver: true, ...more })
  })

  test.each([
    ['exit 0', { exitCode: 0, error: { name: 'ProcessExited' } }],
    ['kill -KILL $$', { signal: 'SIGKILL', error: { name: 'Killed' } }],
  ])('a process that ends in the middle with `%s` has failed, with what it wrote', async (end, more) => {
    const kernel = start(`${READY} ${NEXT} echo partial; ${end}`)
    expect(await run(kernel)).toMatchObject({ status: 'failed', stdout: 'partial\n', isOver: true, ...more })
  })

  test('one at a time', async () => {
    const kernel = start(`${READY} ${NEXT} ${NEXT}`)
    const first = run(kernel)
    await expect(run(kernel)).rejects.toThrow('at work')
    await kernel.link.stop()
    expect(await first).toMatchObject({ status: 'cancelled', isOver: true })
  })

  test('an interpreter that ended between runs is gone', async () => {
    const kernel = start(`${READY} ${NEXT} ${DONE} sleep 0.2`)
    await run(kernel)
    await expect.poll(() => kernel.link.isOver).toBe(true)
    await expect(run(kernel)).rejects.toMatchObject({ code: 'interpreter_gone' })
  })

  test('an interpreter that ends at its start was never ready', async () => {
    await expect(start('exit 1').link.ready).rejects.toThrow('ended at its start')
  })
})

describe('time', () => {
  test('a run that takes too long is killed, with what it wrote', async () => {
    const kernel = start(`${READY} ${NEXT} echo partial; sleep 100`)
    const outcome = await run(kernel, { ...CODE, timeoutMs: 300 })
    expect(outcome).toMatchObject({ status: 'timeout', stdout: 'partial\n', isOver: true })
    expect(outcome.metrics.wallMs).toBeLessThan(1_000)
    expect(kernel.kills).toBe(1)
  })

  test('a taker that never takes does not hold up the end of the time', async () => {
    const kernel = start(`${READY} ${NEXT} yes`)
    const outcome = await kernel.link.run({ ...CODE, timeoutMs: 300 }, { take: () => new Promise(() => {}) })
    expect(outcome).toMatchObject({ status: 'timeout', truncated: true })
  })

  test('a program that has answered still has to end in time', async () => {
    const kernel = start(`${READY} ${NEXT} ${DONE} sleep 100`)
    expect(await run(kernel, { ...SCRIPT, timeoutMs: 300 })).toMatchObject({
      status: 'timeout',
      isOver: true,
    })
  })

  test('an interrupted run is cancelled, whatever it says, and the interpreter lives on', async () => {
    const error = { name: 'KeyboardInterrupt', message: '' }
    const kernel = start(`trap 'isOver=1' INT; ${READY} ${NEXT} echo begun
      while [ -z "$isOver" ]; do sleep 0.02; done
      echo '{"done":{"error":${JSON.stringify(error)}}}' >&3; ${NEXT} ${DONE} sleep 100`)
    const outcome = await kernel.link.run(CODE, { take: () => kernel.link.interrupt() })
    expect(outcome).toMatchObject({ status: 'cancelled', error, isOver: false })
    expect(await run(kernel)).toMatchObject({ status: 'completed' })
  })

  test('a run that does not listen is killed after the grace', async () => {
    const kernel = start(`trap '' INT; ${READY} ${NEXT} sleep 100`)
    await kernel.link.ready
    const running = run(kernel)
    kernel.link.interrupt()
    const outcome = await running
    expect(outcome).toMatchObject({ status: 'cancelled', isOver: true })
    expect(outcome.metrics.wallMs).toBeGreaterThan(INTERRUPT_GRACE_MS - 100)
  })

  test('an interrupt between runs, and a second stop, do nothing', async () => {
    const kernel = start(`${READY} ${NEXT} ${DONE} sleep 100`)
    await run(kernel)
    kernel.link.interrupt()
    expect(kernel.link.isOver).toBe(false)
    await Promise.all([kernel.link.stop(), kernel.link.stop()])
    expect(kernel.kills).toBe(1)
  })
})

describe('output', () => {
  test('belongs to its own run, also when much of it is still on its way', async () => {
    const kernel = start(
      `${READY} for n in 1 2 3; do ${NEXT} head -c 300000 /dev/zero | tr '\\0' $n; ${DONE} done; sleep 100`,
    )
    for (const n of [1, 2, 3]) expect((await run(kernel)).stdout).toBe(String(n).repeat(300_000))
  })

  test('between runs belongs to the next one, up to a bound', async () => {
    const written = join(await mkdtemp(join(tmpdir(), 'ash-link-')), 'written')
    onTestFinished(() => rm(dirname(written), { recursive: true }))
    const kernel = start(`${READY} ${NEXT} ${DONE} sleep 0.3; echo late
      head -c 100000 /dev/zero | tr '\\0' e >&2; touch ${written}; ${NEXT} ${DONE} sleep 100`)
    expect((await run(kernel)).stdout).toBe('')
    await expect.poll(() => existsSync(written)).toBe(true)
    const next = await run(kernel)
    expect(next).toMatchObject({ stdout: 'late\n', truncated: true })
    expect(next.stderr.length).toBe(64 * 1024)
  })

  test('a flood is read to its end, and all but its beginning dropped', async () => {
    const before = process.memoryUsage().rss
    const kernel = start(`${READY} ${NEXT} timeout 1 yes; ${DONE} sleep 100`)
    const outcome = await run(kernel, CODE, 1_000_001)
    expect(outcome).toMatchObject({ status: 'completed', truncated: true })
    expect(outcome.stdout.length).toBe(1_000_001)
    expect(process.memoryUsage().rss - before).toBeLessThan(100 * 1024 * 1024)
  })

  test('exactly the limit is whole', async () => {
    const outcome = await shell("head -c 1000 /dev/zero | tr '\\0' a", {})
    expect(outcome).toMatchObject({ truncated: false })
    const kernel = start(`${READY} ${NEXT} head -c 1000 /dev/zero | tr '\\0' a; ${DONE} sleep 100`)
    expect(await run(kernel, CODE, 1000)).toMatchObject({ stdout: 'a'.repeat(1000), truncated: false })
  })

  test('comes in pieces of bounded size, none of which cuts a character', async () => {
    const { pieces, stdout } = await shell("printf 'a'; for i in {1..50000}; do printf '😀'; done")
    expect(stdout).toBe(`a${'😀'.repeat(50_000)}`)
    for (const { text } of pieces) {
      expect(text.length).toBeLessThanOrEqual(64 * 1024)
      expect(text.isWellFormed()).toBe(true)
    }
  })

  test('bytes that are no text become replacement characters', async () => {
    expect((await shell("printf 'a\\377\\376b\\303'")).stdout).toBe('a\uFFFD\uFFFDb\uFFFD')
  })

  test('a slow taker gets all of it, and meanwhile nothing is read', async () => {
    const kernel = start(`${READY} ${NEXT} head -c 3000000 /dev/zero | tr '\\0' a; ${DONE} sleep 100`)
    let [chars, atOnce] = [0, 0]
    const outcome = await kernel.link.run(CODE, {
      async take({ text }) {
        expect(++atOnce).toBe(1)
        await new Promise((resolve) => setTimeout(resolve, 5))
        atOnce--
        chars += text.length
      },
    })
    expect([chars, outcome.truncated]).toEqual([3_000_000, false])
  })

  test('a slow taker gets all of it also of a process that has ended', async () => {
    let chars = 0
    const outcome = await startShell().link.run(
      { ...CODE, code: "head -c 1000000 /dev/zero | tr '\\0' a; exit 0" },
      {
        async take({ text }) {
          await new Promise((resolve) => setTimeout(resolve, 50))
          chars += text.length
        },
      },
    )
    expect([outcome.status, chars, outcome.truncated]).toEqual(['completed', 1_000_000, false])
  })

  test('a taker that never takes does not hold up a stop', async () => {
    const kernel = start(`${READY} ${NEXT} echo; ${DONE} sleep 100`)
    const taking = Promise.withResolvers<void>()
    const take = () => {
      taking.resolve()
      return new Promise<void>(() => {})
    }
    const running = kernel.link.run({ ...CODE, timeoutMs: 100_000 }, { take })
    await taking.promise
    await kernel.link.stop()
    expect(await running).toMatchObject({ status: 'cancelled', truncated: true, isOver: true })
  })

  test('a taker that fails ends the run, and the interpreter', async () => {
    const kernel = start(`${READY} ${NEXT} echo; sleep 100`)
    const failing = kernel.link.run(CODE, { take: () => Promise.reject(new Error('disk full')) })
    await expect(failing).rejects.toThrow('disk full')
    expect(kernel.link.isOver).toBe(true)
    expect(kernel.kills).toBe(1)
  })
})

describe('a channel that others write to', () => {
  test.each([
    ['something that is not JSON', 'echo hello >&3'],
    ['an unknown line', `echo '{"other":1}' >&3`],
    ['a number', 'echo 1 >&3'],
    ['ready again', `echo '{"ready":true}' >&3`],
    ['bytes that are no text', "printf '\\377\\n' >&3"],
    ['an unfinished result', `echo '{"result":1' >&3`],
    ['an empty result', `echo '{"result":}' >&3`],
    ['two results', `echo '{"result":1}' >&3; echo '{"result":2}' >&3`],
    ['a display that is no object', `echo '{"display":[1]}' >&3`],
    ['a display of no media type', `echo '{"display":{"__proto__x":1}}' >&3`],
    ['an end that is none', `echo '{"done":1}' >&3`],
    ['an error that is none', `echo '{"done":{"error":{"name":1}}}' >&3`],
    ['an exit code that is none', `echo '{"done":{"exitCode":"x"}}' >&3`],
    [
      'two ends',
      `echo '{"done":{}}
{"done":{}}' | cat >&3`,
    ],
    ['a line without an end', `head -c ${MAX_INTERPRETER_LINE_BYTES + 1} /dev/zero | tr '\\0' ' ' >&3`],
    ['its end', 'exec 3>&-'],
  ])('%s breaks it, and the interpreter is killed', async (_, bad) => {
    const kernel = start(`${READY} ${NEXT} echo partial; ${bad}; sleep 100`)
    expect(await run(kernel)).toMatchObject({
      status: 'failed',
      error: { name: 'ResultChannelBroken' },
      results: [],
      stdout: 'partial\n',
      isOver: true,
    })
    expect(kernel.kills).toBe(1)
  })

  test('a result before there is a run leaves nothing to run in', async () => {
    const kernel = start(`${READY} echo '{"result":1}' >&3; sleep 100`)
    await expect.poll(() => kernel.link.isOver).toBe(true)
    await expect(run(kernel)).rejects.toMatchObject({ code: 'interpreter_gone' })
  })

  test('displays beyond the limit are dropped, and the run says so', async () => {
    const half = Math.ceil(MAX_RESULTS_BYTES / 2)
    const display = `{ printf '{"display":{"text/plain":"'; head -c ${half} /dev/zero | tr '\\0' a; echo '"}}'; } >&3`
    const kernel = start(`${READY} ${NEXT} ${display}; ${display}; ${DONE} sleep 100`)
    const outcome = await run(kernel)
    expect(outcome).toMatchObject({ status: 'completed', truncated: true })
    expect(outcome.results).toHaveLength(1)
  })

  test('a display that nests too deeply is dropped', async () => {
    const deep = `${'['.repeat(5_000)}${']'.repeat(5_000)}`
    const kernel = start(
      `${READY} ${NEXT} echo '{"display":{"application/json":${deep}}}' >&3; ${DONE} sleep 100`,
    )
    expect(await run(kernel)).toMatchObject({ status: 'completed', truncated: true, results: [] })
  })
})

describe('a shell', () => {
  test('runs a script with its variables, and ends with its exit code', async () => {
    const env = { A: "it's $HOME `x`\n2", 'not a name': 'x' }
    expect(await shell('echo "$A" "$#"; cat; exit 3', { env })).toMatchObject({
      status: 'failed',
      stdout: `${env.A} 0\n`,
      exitCode: 3,
      error: { name: 'Exit' },
      isOver: true,
    })
  })

  test.each([
    ['cat <<X\nin $((1+1))\nX', 'in 2\n'],
    ["trap 'echo bye' EXIT; f() { echo f; }; f", 'f\nbye\n'],
    ['#!/bin/bash\nexec echo replaced', 'replaced\n'],
    ['exec > >(cat); echo through', 'through\n'],
    ['[ -e /proc/self/fd/3 ] || echo closed', 'closed\n'],
    ['', ''],
  ])('%j works as in a file', async (code, stdout) => {
    expect(await shell(code)).toMatchObject({ status: 'completed', exitCode: 0, stdout })
  })

  test('an error names the line of the code', async () => {
    const { stderr } = await shell('true\nnot-a-command', { env: { A: 'b' } })
    expect(stderr).toContain('line 2: not-a-command')
  })

  test('a long script works, and its own end counts', async () => {
    expect(await shell(`${'true # filling\n'.repeat(80_000)}kill -TERM $$`)).toMatchObject({
      status: 'failed',
      signal: 'SIGTERM',
    })
  })

  test('what it leaves in the background does not hold it up', async () => {
    const outcome = await shell('sleep 1000 & echo done')
    expect(outcome).toMatchObject({ status: 'completed', stdout: 'done\n' })
    expect(outcome.metrics.wallMs).toBeLessThan(2_000)
  })

  test('an interrupt ends it', async () => {
    const { link } = startShell()
    const request = { ...CODE, code: 'echo begun; sleep 1000' }
    expect(await link.run(request, { take: () => link.interrupt() })).toMatchObject({
      status: 'cancelled',
      isOver: true,
    })
  })
})

describe('measurements', () => {
  const use = (n: number) => ({ cpuMs: n, peakMemoryBytes: 10 * n, ioReadBytes: n, ioWriteBytes: n })

  test('are the difference between beginning and end, the peak as it is', async () => {
    const samples = [use(100), use(130)]
    const kernel = start(`${READY} ${NEXT} ${DONE} sleep 100`, { measure: async () => samples.shift() })
    expect((await run(kernel)).metrics).toMatchObject({ ...use(30), peakMemoryBytes: 1300 })
  })

  test.each([
    ['fail', () => Promise.reject(new Error('no'))],
    [
      'throw',
      () => {
        throw new Error('no')
      },
    ],
    ['are not there', () => undefined],
    ['are no numbers', () => use(Number.NaN)],
  ])('that %s are zeros', async (_, measure) => {
    const kernel = start(`${READY} ${NEXT} ${DONE} sleep 100`, { measure })
    expect((await run(kernel)).metrics).toMatchObject(use(0))
  })
})
