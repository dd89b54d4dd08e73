import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isAshError, type Language, type RunOutcome, type RunRequest } from '@ash-ai/shared'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { DirectInterpreter } from '../interpreters/direct-interpreter.ts'
import type { InterpreterRequest } from '../interpreters/start-interpreter.ts'
import { DEFAULT_LIMITS } from '../limits/resource-limits.ts'
import { SandboxManager } from '../manager.ts'
import { sessionDirs } from '../session-dirs.ts'
import { listProcesses, type ProcessInfo } from './processes.ts'
import type { ProviderFixture } from './provider-suite.ts'

/** What a run printed and came to. */
interface Ran extends RunOutcome {
  stdout: string
  stderr: string
}

const HELLO: Record<Language, string> = {
  python: 'print("hello"); 6 * 7',
  javascript: 'console.log("hello"); 6 * 7',
  shell: 'echo hello',
}
const FOR_EVER: Record<Language, string> = {
  python: 'print("begun", flush=True)\nwhile True: pass',
  javascript: 'console.log("begun"); while (true) {}',
  shell: 'echo begun; while :; do :; done',
}

/** The contract of interpreters without a bridge, whatever the code in them does. */
export function describeInterpreters(
  name: string,
  make: () => Promise<ProviderFixture>,
  has: { isolation: boolean; groups: boolean },
): void {
  describe(`interpreters under the ${name} provider`, () => {
    let fixture: ProviderFixture
    let started = 0
    const live: DirectInterpreter[] = []
    beforeAll(async () => {
      fixture = await make()
    })
    afterEach(async () => {
      await Promise.all(live.splice(0).map((interpreter) => interpreter.stop()))
    })
    afterAll(() => fixture?.dispose())

    const newRequest = (language: Language, more: Partial<InterpreterRequest> = {}): InterpreterRequest => {
      const sandboxId = `suite-${process.pid}-${name.replaceAll(/\W/g, '-')}-run-${started++}`
      return {
        sandboxId,
        language,
        dirs: sessionDirs(fixture.dataDir, sandboxId),
        owner: fixture.nextOwner(),
        limits: DEFAULT_LIMITS,
        env: { OF_THE_TEMPLATE: 'yes' },
        ...more,
      }
    }
    const start = async (request: InterpreterRequest, runtime = fixture.runtime) => {
      const { provider, upstream } = fixture
      const env = { OF_THE_OPERATOR: 'yes' }
      const manager = new SandboxManager({ provider, runtime, upstream, modelIdleTimeoutMs: 10_000, env })
      const interpreter = await manager.startInterpreter(request)
      live.push(interpreter)
      return interpreter
    }
    const runIn = async (
      interpreter: DirectInterpreter,
      code: string,
      more: Partial<RunRequest> = {},
    ): Promise<Ran> => {
      const output = { stdout: '', stderr: '' }
      const outcome = await interpreter.run({ kind: 'script', code, timeoutMs: 20_000, ...more }, (piece) => {
        output[piece.stream] += piece.text
      })
      return { ...outcome, ...output }
    }
    const run = async (language: Language, code: string, more: Partial<RunRequest> = {}) =>
      runIn(await start(newRequest(language)), code, more)
    const processesOf = async ({ sandboxId, owner }: InterpreterRequest): Promise<ProcessInfo[]> =>
      (await listProcesses()).filter(
        ({ uid, environ }) => uid === owner?.uid || environ.includes(`ASH_SANDBOX_ID=${sandboxId}`),
      )
    const expectNothingLeft = async (request: InterpreterRequest) => {
      await expect.poll(() => processesOf(request), { timeout: 2_000 }).toEqual([])
      expect(await readdir(request.dirs.root)).not.toContain('run')
    }

    test.each(['python', 'javascript', 'shell'] as const)(
      '%s runs a program to its end',
      async (language) => {
        const request = newRequest(language)
        const interpreter = await start(request)
        const ran = await runIn(interpreter, HELLO[language])
        expect(ran).toMatchObject({ status: 'completed', stdout: 'hello\n', stderr: '', isOver: true })
        if (language !== 'shell') expect(ran.result).toBe('42')
        expect(ran.metrics.wallMs).toBeGreaterThan(0)
        expect(interpreter.isOver).toBe(true)
        await interpreter.exited
        await expectNothingLeft(request)
      },
    )

    test('outputs may be opened by name', async () => {
      const code = 'echo a > /dev/stderr; echo b | tee /dev/stderr; sh -c "echo c > /dev/stdout"'
      expect(await run('shell', code)).toMatchObject({
        status: 'completed',
        stdout: 'b\nc\n',
        stderr: 'a\nb\n',
      })
    })

    test('tells what a run used', async () => {
      const code =
        'import time\nx = b"x" * 50_000_000\nopen("f", "wb").write(x)\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass'
      const { metrics } = await run('python', code, { kind: 'code' })
      expect(metrics.cpuMs).toBeGreaterThan(250)
      expect(metrics.peakMemoryBytes).toBeGreaterThan(50_000_000)
      expect(metrics.ioWriteBytes).toBeGreaterThanOrEqual(50_000_000)
    })

    test('keeps what code defined for the next run, and files for whoever comes after', async () => {
      const request = newRequest('python')
      const interpreter = await start(request)
      await runIn(interpreter, 'x = 41', { kind: 'code' })
      const second = await runIn(interpreter, 'open("kept.txt", "w").write("kept"); x + 1', { kind: 'code' })
      expect(second).toMatchObject({ status: 'completed', result: '42', isOver: false })
      await interpreter.stop()
      expect(await readFile(join(request.dirs.workspace, 'kept.txt'), 'utf8')).toBe('kept')
      await expectNothingLeft(request)
    })

    test('gives a program exactly the expected environment, and the run’s own on top', async () => {
      process.env.ASH_TEST_SECRET = 'secret-of-the-host'
      try {
        const code = 'import os, json\nprint(json.dumps(dict(os.environ)))'
        const { stdout } = await run('python', code, { env: { OF_THE_RUN: 'yes' } })
        const env = JSON.parse(stdout) as Record<string, string>
        const expected = [
          'ASH_SANDBOX_ID',
          'ASH_WORKSPACE_DIR',
          'HOME',
          'LANG',
          'OF_THE_OPERATOR',
          'OF_THE_RUN',
        ]
        const more = ['OF_THE_TEMPLATE', 'PATH', 'TERM', 'TMPDIR', ...fixture.ownVariables]
        const set = Object.keys(env).filter((key) => !SET_BY_PROGRAMS.includes(key))
        expect(set.sort()).toEqual([...expected, ...more].sort())
      } finally {
        delete process.env.ASH_TEST_SECRET
      }
    })

    test.each(['python', 'javascript', 'shell'] as const)(
      'kills %s when its time is over',
      async (language) => {
        const request = newRequest(language)
        const interpreter = await start(request)
        const ran = await runIn(interpreter, FOR_EVER[language], { timeoutMs: 700 })
        expect(ran).toMatchObject({ status: 'timeout', stdout: 'begun\n', isOver: true })
        expect(await processesOf(request)).toEqual([])
      },
    )

    test('an interrupt stops the code and keeps the interpreter', async () => {
      const interpreter = await start(newRequest('python'))
      await runIn(interpreter, 'x = 1', { kind: 'code' })
      const begun = Promise.withResolvers<void>()
      const request: RunRequest = {
        kind: 'code',
        code: 'print(1, flush=True)\nwhile True: pass',
        timeoutMs: 20_000,
      }
      const running = interpreter.run(request, () => begun.resolve())
      await begun.promise
      await interpreter.interrupt()
      expect(await running).toMatchObject({ status: 'cancelled', isOver: false })
      expect(await runIn(interpreter, 'x', { kind: 'code' })).toMatchObject({
        status: 'completed',
        result: '1',
      })
    })

    test('code that does not listen to an interrupt is killed', async () => {
      const request = newRequest('python')
      const interpreter = await start(request)
      const code =
        'import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(1, flush=True)\nwhile True: pass'
      const begun = Promise.withResolvers<void>()
      const running = interpreter.run({ kind: 'code', code, timeoutMs: 20_000 }, () => begun.resolve())
      await begun.promise
      await interpreter.interrupt()
      expect(await running).toMatchObject({ status: 'cancelled', isOver: true })
      expect(await processesOf(request)).toEqual([])
    })

    test('a stop ends the run as cancelled, with everything it started', async () => {
      const request = newRequest('shell')
      const interpreter = await start(request)
      const begun = Promise.withResolvers<void>()
      const code = "trap '' TERM INT HUP; (setsid sleep 1000 &); echo up; while :; do sleep 1000; done"
      const running = interpreter.run({ kind: 'script', code, timeoutMs: 60_000 }, () => begun.resolve())
      await begun.promise
      await interpreter.stop()
      expect(await running).toMatchObject({ status: 'cancelled', isOver: true })
      expect(await processesOf(request)).toEqual([])
      await interpreter.stop()
    })

    test('a process that ends in its own way says how', async () => {
      const left = await run('python', 'import os\nprint("so far", flush=True)\nos._exit(3)')
      expect(left).toMatchObject({ status: 'failed', exitCode: 3, stdout: 'so far\n', isOver: true })
      const crash = 'import ctypes\nctypes.string_at(0)'
      expect(await run('python', crash)).toMatchObject({ status: 'failed', signal: 'SIGSEGV', isOver: true })
      expect(await run('shell', 'kill -SEGV $$')).toMatchObject({ status: 'failed', signal: 'SIGSEGV' })
      expect(await run('shell', 'exit 7')).toMatchObject({ status: 'failed', exitCode: 7 })
    })

    test('closing its own output or channel is nobody else’s problem', async () => {
      const closing = 'import os\nos.close(1)\nos.close(2)'
      expect((await run('python', closing, { kind: 'code' })).isOver).toBeTypeOf('boolean')
      const ran = await run('python', 'import os\nos.closerange(3, 4096)\nwhile True: pass')
      expect(ran).toMatchObject({ status: 'failed', error: { name: 'ResultChannelBroken' }, isOver: true })
    })

    test('a daemon is dead when the run is over', async () => {
      const request = newRequest('python')
      const interpreter = await start(request)
      const code = DAEMON(has.isolation ? '{}' : 'os.environ')
      const ran = await runIn(interpreter, code)
      expect(ran.status).toBe('completed')
      await interpreter.exited
      await interpreter.stop()
      expect(await processesOf(request)).toEqual([])
    })

    test('what cannot start says what is missing, and leaves nothing', async () => {
      const request = newRequest('python')
      const without = { ...fixture.runtime, kernels: undefined }
      const error = await start(request, without).catch((thrown: unknown) => thrown)
      expect(isAshError(error, 'interpreter_missing')).toBe(true)
      const broken = { ...fixture.runtime, kernels: join(fixture.dataDir, 'none') }
      const other = newRequest('python')
      const failure = await start(other, broken).catch((thrown: unknown) => thrown)
      expect(isAshError(failure, 'sandbox_start_failed')).toBe(true)
      expect((failure as Error).message).not.toContain(fixture.dataDir)
      expect(String((failure as Error).cause)).toMatch(/No such file|can't open file/)
      await expectNothingLeft(request)
      await expectNothingLeft(other)
    })

    if (has.isolation)
      test('a shell that never ran is a failure of the sandbox, not of the code', async () => {
        const broken = { ...fixture.runtime, kernels: join(fixture.dataDir, 'none') }
        const interpreter = await start(newRequest('shell'), broken)
        const error = await runIn(interpreter, 'echo hello').catch((thrown: unknown) => thrown)
        expect(isAshError(error)).toBe(true)
        expect(['sandbox_start_failed', 'interpreter_gone']).toContain((error as { code: string }).code)
      })

    if (has.isolation)
      test('has the boundary of every sandbox, and no way out', async () => {
        const { stdout } = await run('shell', LOOK_AROUND)
        const seen = JSON.parse(stdout) as Record<string, string>
        expect(seen).toEqual({
          uid: '1000',
          cap: '0000000000000000',
          bound: '0000000000000000',
          nnp: '1',
          seccomp: '2',
          net: 'lo',
          run: '',
          bridge: 'no',
          kernels: 'no',
          workspace: 'yes',
          sockets: '0', // The channel is closed by now.
          init: '0',
          doors: '0',
        })
      })

    if (has.groups)
      test('a fork bomb ends with its run', async () => {
        const request = newRequest('shell', { limits: { ...DEFAULT_LIMITS, processes: 60 } })
        const interpreter = await start(request)
        const ran = await runIn(interpreter, 'bomb() { bomb | bomb & }; bomb; while :; do :; done', {
          timeoutMs: 2_000,
        })
        expect(['timeout', 'failed']).toContain(ran.status)
        await interpreter.exited
        expect(await processesOf(request)).toEqual([])
      })

    if (has.groups)
      test('code that takes too much memory is told so', async () => {
        const request = newRequest('python', { limits: { ...DEFAULT_LIMITS, memoryMb: 64 } })
        const ran = await runIn(await start(request), 'x = bytearray(400_000_000)\nprint(len(x))', {
          kind: 'code',
        })
        expect(ran).toMatchObject({ status: 'failed', error: { name: 'OutOfMemory' }, isOver: true })
        expect(ran.error?.message).toContain('64 MB')
      })
  })
}

/** Forks twice, leaves its session and, without an environment, its name. */
const DAEMON = (env: string) => `
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve('/bin/sleep', ['sleep', '1000'], ${env})
    os._exit(0)
os.wait()
`

/** Locales and the programs themselves bring these. */
const SET_BY_PROGRAMS = ['LC_CTYPE', 'MPLBACKEND', 'PWD', 'OLDPWD', 'SHLVL', '_']

const LOOK_AROUND = `
field() { sed -n "s/^$1:[[:space:]]*\\([^[:space:]]*\\).*/\\1/p" /proc/self/status; }
writable() { if touch "$1/x" 2> /dev/null; then echo yes; else echo no; fi; }
exists() { if [ -e "$1" ]; then echo yes; else echo no; fi; }
printf '{"uid":"%s","cap":"%s","bound":"%s","nnp":"%s","seccomp":"%s",' "$(id -u)" "$(field CapEff)" "$(field CapBnd)" "$(field NoNewPrivs)" "$(field Seccomp)"
printf '"net":"%s","run":"%s",' "$(sed -n 's/^ *\\(.*\\):.*/\\1/p' /proc/net/dev | xargs)" "$(ls -A /run/ash 2> /dev/null | xargs)"
printf '"bridge":"%s","kernels":"%s","workspace":"%s",' "$(exists /opt/ash/bridge)" "$(writable /opt/ash/kernels)" "$(writable /workspace)"
printf '"doors":"%s",' "$(ls -l /proc/$$/fd /proc/1/fd 2> /dev/null | grep -c tasks)"
printf '"sockets":"%s","init":"%s"}' "$(ls -l /proc/$$/fd | grep -c socket)" "$(tr -d '\\0' < /proc/1/environ | wc -c)"
`
