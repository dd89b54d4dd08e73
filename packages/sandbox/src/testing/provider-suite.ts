import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type BridgeEvent, type ExecResult, isAshError } from '@ash-ai/shared'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../limits/resource-limits.ts'
import { type Sandbox, SandboxManager, type SandboxRequest } from '../manager.ts'
import { Budget } from '../network/model/budget.ts'
import { loadPrices } from '../network/model/price-table.ts'
import type { ModelUpstream } from '../network/model-proxy.ts'
import type { Owner, SandboxProvider } from '../provider.ts'
import type { Runtime } from '../runtime.ts'
import { createSessionDirs, sessionDirs } from '../session-dirs.ts'
import { listProcesses, type ProcessInfo } from './processes.ts'

/** What the suite needs to put a provider to the test. */
export interface ProviderFixture {
  provider: SandboxProvider
  runtime: Runtime
  /** A model API that answers every prompt with `echo: <prompt>`. */
  upstream: ModelUpstream
  /** Where sandboxes may reach everything below. */
  dataDir: string
  /** A host user that no other sandbox has; undefined where the provider does not switch users. */
  nextOwner: () => Owner | undefined
  /** Variables that only this provider sets. */
  ownVariables: string[]
  dispose: () => Promise<void>
}

const COMMON_VARIABLES = [
  'ANTHROPIC_API_KEY',
  'ANTHROPIC_BASE_URL',
  'ASH_AGENT_DIR',
  'ASH_SANDBOX_ID',
  'ASH_SESSION_ID',
  'ASH_WORKSPACE_DIR',
  'CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'NODE_USE_ENV_PROXY',
  'http_proxy',
  'https_proxy',
  'no_proxy',
  'HOME',
  'LANG',
  'OF_THE_OPERATOR',
  'OF_THE_SESSION',
  'PATH',
  'TERM',
  'TMPDIR',
]
/** The shell adds these on its own. */
const SHELL_VARIABLES = ['PWD', 'SHLVL', '_']

/** The contract of every provider: what one of them cannot promise here, it is not a provider for. */
export function describeSandboxProvider(name: string, make: () => Promise<ProviderFixture>): void {
  describe(`the ${name} provider`, () => {
    let fixture: ProviderFixture
    let agentDir: string
    let started = 0
    const live: Sandbox[] = []

    beforeAll(async () => {
      fixture = await make()
      agentDir = join(fixture.dataDir, 'agent')
      await mkdir(agentDir)
      await writeFile(join(agentDir, 'CLAUDE.md'), 'You are a test.\n')
    })
    afterEach(async () => {
      await Promise.all(live.splice(0).map((sandbox) => sandbox.stop()))
    })
    afterAll(() => fixture?.dispose())

    const newRequest = (more: Partial<SandboxRequest> = {}): SandboxRequest => {
      const sandboxId = `suite-${process.pid}-${name}-${started++}`
      return {
        sandboxId,
        dirs: sessionDirs(fixture.dataDir, sandboxId),
        agentDir,
        owner: fixture.nextOwner(),
        limits: DEFAULT_LIMITS,
        network: { mode: 'none' },
        budget: new Budget(loadPrices()),
        setup: { sessionId: `session-${sandboxId}`, env: { OF_THE_SESSION: 'yes' } },
        ...more,
      }
    }
    const start = async (request: SandboxRequest, runtime = fixture.runtime): Promise<Sandbox> => {
      const { provider, upstream } = fixture
      const env = { OF_THE_OPERATOR: 'yes' }
      const manager = new SandboxManager({ provider, runtime, upstream, modelIdleTimeoutMs: 10_000, env })
      const sandbox = await manager.start(request)
      live.push(sandbox)
      return sandbox
    }
    const exec = async (sandbox: Sandbox, command: string): Promise<ExecResult> =>
      (await sandbox.bridge.call({ cmd: 'exec', command, timeoutMs: 20_000 })) as ExecResult
    const processesOf = async ({ sandboxId, owner }: SandboxRequest): Promise<ProcessInfo[]> =>
      (await listProcesses()).filter(
        ({ uid, environ }) => uid === owner?.uid || environ.includes(`ASH_SANDBOX_ID=${sandboxId}`),
      )
    /** A failed or ended sandbox: folders stay for the session, all else is gone. */
    const expectNothingLeft = async (request: SandboxRequest) => {
      await expect.poll(() => processesOf(request), { timeout: 2_000 }).toEqual([])
      expect(await readdir(request.dirs.root)).not.toContain('run')
    }

    test('can run here', async () => {
      await fixture.provider.check()
    })

    test('starts a sandbox that runs commands and answers messages', async () => {
      const sandbox = await start(newRequest())
      expect(await exec(sandbox, 'pwd -P; cat CLAUDE.md')).toMatchObject({
        exitCode: 0,
        stdout: expect.stringContaining('You are a test.'),
      })
      const events: BridgeEvent[] = []
      const query = { cmd: 'query' as const, content: 'hello', options: {} }
      const end = await sandbox.bridge.run(query, (event) => void events.push(event))
      expect(end).toMatchObject({ ev: 'done', data: { stopReason: 'end_turn' } })
      expect(events.some((event) => event.ev === 'message' && event.json.includes('echo: hello'))).toBe(true)
    })

    test('gives a command exactly the expected environment', async () => {
      process.env.ASH_TEST_SECRET = 'secret-of-the-host'
      try {
        const sandbox = await start(newRequest())
        const { stdout } = await exec(sandbox, "cat /proc/self/environ | tr '\\0' '\\n'")
        const names = stdout
          .trim()
          .split('\n')
          .map((line) => line.split('=', 1)[0] ?? '')
        const expected = [...COMMON_VARIABLES, ...SHELL_VARIABLES, ...fixture.ownVariables]
        expect(names.filter((variable) => variable !== 'OLDPWD').sort()).toEqual(expected.sort())
        expect(stdout).not.toContain('secret-of-the-host')
        expect(stdout).toContain(`\nASH_SANDBOX_ID=${sandbox.id}\n`)
      } finally {
        delete process.env.ASH_TEST_SECRET
      }
    })

    test('keeps workspace and home when it stops, and finds them again', async () => {
      const request = newRequest()
      const first = await start(request)
      await exec(first, 'echo kept > note.txt; echo kept > ~/note.txt')
      await first.stop()
      expect(await readFile(join(request.dirs.workspace, 'note.txt'), 'utf8')).toBe('kept\n')
      await expectNothingLeft(request)
      const second = await start(request)
      expect((await exec(second, 'cat note.txt ~/note.txt')).stdout).toBe('kept\nkept\n')
    })

    test('gives each sandbox a workspace and home of its own', async () => {
      const [one, other] = await Promise.all([start(newRequest()), start(newRequest())])
      await exec(one, 'echo mine > private.txt; echo mine > ~/private.txt')
      expect((await exec(other, 'ls -A . ~')).stdout).not.toContain('private.txt')
    })

    test('stops everything inside: orphans, new sessions, whoever ignores signals', async () => {
      const request = newRequest()
      const sandbox = await start(request)
      const stubborn = (n: number) => `trap '' TERM HUP INT; touch up-${n}; while :; do sleep 1000; done`
      const detach = (n: number) =>
        `(setsid bash -c "${stubborn(n)}" > /dev/null 2>&1 < /dev/null &); until [ -e up-${n} ]; do :; done`
      await exec(sandbox, detach(1))
      await exec(sandbox, `bash -c '${detach(2).replaceAll("'", "'\\''")}'`)
      const running = sandbox.bridge
        .call({ cmd: 'exec', command: stubborn(3), timeoutMs: 60_000 })
        .catch((error: unknown) => error)
      await exec(sandbox, 'until [ -e up-3 ]; do :; done')
      await sandbox.stop()
      expect(await processesOf(request)).toEqual([])
      await expectNothingLeft(request)
      expect(isAshError(await running, 'sandbox_died')).toBe(true)
      await sandbox.stop()
    })

    test('leaves nothing of a sandbox that is killed at any moment of its start', async () => {
      const request = newRequest()
      const { dirs, owner, sandboxId } = request
      await createSessionDirs(dirs, agentDir, owner)
      const modelSocket = join(fixture.dataDir, 'no-socket')
      await writeFile(modelSocket, '')
      for (let moment = 0; moment < 60; moment++) {
        const { provider, runtime } = fixture
        const { workspace: workspaceDir, home: homeDir } = dirs
        const limits = DEFAULT_LIMITS
        const spec = {
          id: sandboxId,
          runtime,
          agentDir,
          workspaceDir,
          homeDir,
          modelSocket,
          egressSocket: modelSocket,
          owner,
          limits,
          env: {},
        }
        const sandbox = await provider.start(spec)
        sandbox.stream.on('error', () => {})
        await sleep(moment / 10)
        await sandbox.kill()
      }
      await expectNothingLeft(request)
    })

    test('tells that a sandbox is gone whose bridge was killed from inside, and clears up', async () => {
      const request = newRequest()
      const sandbox = await start(request)
      const killed = sandbox.bridge
        .call({ cmd: 'exec', command: 'setsid sleep 1000 & kill -KILL $PPID', timeoutMs: 20_000 })
        .catch((error: unknown) => error)
      expect(isAshError(await killed, 'sandbox_died')).toBe(true)
      await sandbox.exited
      await sandbox.stop()
      await expectNothingLeft(request)
    })

    test('fails to start without the agent’s folder, and leaves nothing', async () => {
      const request = newRequest({ agentDir: join(fixture.dataDir, 'none') })
      const error = await start(request).catch((thrown: unknown) => thrown)
      expect(isAshError(error, 'sandbox_start_failed')).toBe(true)
      expect((error as Error).message).not.toContain(fixture.dataDir)
      await expectNothingLeft(request)
    })

    test('fails to start with a broken bridge, says what it said, and leaves nothing', async () => {
      const request = newRequest()
      const broken = join(fixture.dataDir, 'broken.mjs')
      await writeFile(broken, "throw new Error('broken on purpose')\n")
      const error = await start(request, { ...fixture.runtime, bridge: broken }).catch(
        (thrown: unknown) => thrown,
      )
      expect(isAshError(error, 'sandbox_start_failed')).toBe(true)
      expect((error as Error).message).toContain('broken on purpose')
      await expectNothingLeft(request)
    })

    test('fails to start with a bridge that speaks something else, and leaves nothing', async () => {
      const request = newRequest()
      const garbling = join(fixture.dataDir, 'garbling.mjs')
      const code = "import { Socket } from 'node:net'\nnew Socket({ fd: 3 }).resume().end('hello\\n')\n"
      await writeFile(garbling, code)
      const error = await start(request, { ...fixture.runtime, bridge: garbling }).catch(
        (thrown: unknown) => thrown,
      )
      expect(isAshError(error, 'sandbox_start_failed')).toBe(true)
      await expectNothingLeft(request)
    })

    test('fails to start without Node, and leaves nothing', async () => {
      const request = newRequest()
      const node = join(fixture.dataDir, 'gone')
      const error = await start(request, { ...fixture.runtime, node }).catch((thrown: unknown) => thrown)
      expect(isAshError(error, 'sandbox_start_failed')).toBe(true)
      await expectNothingLeft(request)
    })
  })
}
