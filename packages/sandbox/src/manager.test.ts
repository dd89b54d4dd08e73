import { once } from 'node:events'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { type AshError, type BridgeCommand, encodeLine, isAshError, UNSOLICITED } from '@ash-ai/shared'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { PolledDisk } from './limits/disk/polled-disk.ts'
import { DEFAULT_LIMITS } from './limits/resource-limits.ts'
import { NO_GROUP } from './limits/rlimit.ts'
import { type PrepareRequest, SandboxManager } from './manager.ts'
import { Budget } from './network/model/budget.ts'
import { loadPrices } from './network/model/price-table.ts'
import type { SandboxExit, SandboxProcess, SandboxProvider } from './provider.ts'
import type { Runtime } from './runtime.ts'
import { type SessionDirs, sessionDirs } from './session-dirs.ts'
import { tempDir } from './testing/temp-dir.ts'

/** What a sandbox heard, whatever it was. */
let commands: BridgeCommand[] = []
let answer: (command: BridgeCommand) => Parameters<typeof encodeLine>[0]
let dir: string
beforeEach(async () => {
  dir = await tempDir()
  await mkdir(join(dir, 'agent'))
  commands = []
  answer = ({ id }) => ({ ev: 'result', id, data: {} })
})

/** A bridge at the other end of a real socket, and nothing around it. */
async function startBridge(change: Partial<SandboxProcess>): Promise<SandboxProcess> {
  const path = join(dir, `bridge-${Math.random()}.sock`)
  const server = createServer().listen(path)
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const stream = connect(path)
  const [bridge] = (await accepted) as [Socket]
  bridge.on('error', () => {})
  createInterface({ input: bridge }).on('line', (line) => {
    const command = JSON.parse(line) as BridgeCommand
    commands.push(command)
    bridge.write(encodeLine(answer(command)))
  })
  bridge.write(encodeLine({ ev: 'ready', id: UNSOLICITED }))
  const exit = Promise.withResolvers<SandboxExit>()
  const { usage, hits, pids, enclose, freeze, thaw } = NO_GROUP
  const kill = async () => {
    stream.destroy()
    bridge.destroy()
    server.close()
    exit.resolve({ code: 0, signal: null, stderr: '', usage: await usage() })
  }
  onTestFinished(kill)
  const settled = Promise.resolve()
  return {
    pid: 0,
    settled,
    stream,
    exited: exit.promise,
    usage,
    hits,
    pids,
    enclose,
    freeze,
    thaw,
    kill,
    ...change,
  }
}

/** Counts who holds a disk. */
class CountedDisk extends PolledDisk {
  held = 0
  override async acquire(dirs: SessionDirs): Promise<void> {
    await super.acquire(dirs)
    this.held++
  }
  override release(dirs: SessionDirs): void {
    super.release(dirs)
    this.held--
  }
}

function makeManager(change: Partial<SandboxProcess> = {}) {
  const disk = new CountedDisk()
  const provider = { expectStart() {}, start: () => startBridge(change) } as unknown as SandboxProvider
  const upstream = { baseUrl: 'http://127.0.0.1:9', apiKey: 'key' }
  const options = { provider, disk, upstream, runtime: {} as Runtime, modelIdleTimeoutMs: 1_000, env: {} }
  return { disk, manager: new SandboxManager(options) }
}

const newRequest = (change: Partial<PrepareRequest> = {}): PrepareRequest => ({
  sandboxId: 'sandbox',
  dirs: sessionDirs(dir, 'session'),
  agentDir: join(dir, 'agent'),
  owner: undefined,
  limits: DEFAULT_LIMITS,
  network: { mode: 'none' },
  budget: new Budget(loadPrices()),
  ...change,
})
const SETUP = { sessionId: 'session', env: { NAME: 'value' } }

const whatIsLeft = async () => (await readdir(join(dir, 'sandboxes', 'session'))).sort()

test('a prepared sandbox knows of no session until it is configured', async () => {
  const { manager, disk } = makeManager()
  const prepared = await manager.prepare(newRequest({ preload: 'agent' }))
  expect(commands).toEqual([{ cmd: 'preload', id: '1' }])
  const sandbox = await prepared.configure(SETUP)
  const session = { ...SETUP, modelToken: expect.stringMatching(/^ash-session-.{32}$/) }
  expect(commands[1]).toEqual({ cmd: 'configure', id: '2', session })
  expect(sandbox.id).toBe(prepared.id)
  expect(await whatIsLeft()).toEqual(['disk', 'run'])
  await sandbox.stop()
  expect(await whatIsLeft()).toEqual(['disk'])
  expect(disk.held).toBe(0)
})

test('a start configures, and asks for nothing else', async () => {
  const { manager } = makeManager()
  const sandbox = await manager.start({ ...newRequest(), setup: SETUP })
  expect(commands.map(({ cmd }) => cmd)).toEqual(['configure'])
  await sandbox.stop()
})

test.each(['preload', 'configure'])('a sandbox that fails to %s is taken down', async (failing) => {
  answer = ({ id, cmd }) =>
    cmd === failing
      ? { ev: 'error', id, code: 'sandbox_start_failed', error: 'broken on purpose' }
      : { ev: 'result', id, data: {} }
  const { manager, disk } = makeManager()
  const start = manager.start({ ...newRequest({ preload: 'agent' }), setup: SETUP })
  await expect(start).rejects.toThrow('broken on purpose')
  expect(await whatIsLeft()).toEqual(['disk'])
  expect(disk.held).toBe(0)
})

test('where there is no disk, nothing is left of the network', async () => {
  const { manager, disk } = makeManager()
  disk.acquire = () => Promise.reject(new Error('no loop device in /dev/secret'))
  const error = await manager.prepare(newRequest()).catch((thrown: unknown) => thrown)
  expect(isAshError(error, 'sandbox_start_failed')).toBe(true)
  expect((error as AshError).message).not.toContain('secret')
  expect(await whatIsLeft()).toEqual([])
  expect(disk.held).toBe(0)
})

test('where there are no sockets, the disk is given back', async () => {
  const { manager, disk } = makeManager()
  const dirs = sessionDirs(dir, 'session')
  await writeFile(join(dir, 'file'), '')
  const inFile = { ...dirs, run: join(dir, 'file', 'run') }
  await expect(manager.prepare(newRequest({ dirs: inFile }))).rejects.toThrow('ENOTDIR')
  expect(await whatIsLeft()).toEqual(['disk'])
  expect(disk.held).toBe(0)
})

test('where nothing can be frozen, a freeze says so', async () => {
  const { manager } = makeManager()
  const sandbox = await manager.start({ ...newRequest(), setup: SETUP })
  expect(await sandbox.freeze()).toBe(false)
  expect(sandbox.isFrozen).toBe(false)
  expect(sandbox.pids()).toBeUndefined()
  await sandbox.stop()
})

test('a sandbox is frozen from when all of it stands still until it is thawed', async () => {
  const still = Promise.withResolvers<boolean>()
  const { manager } = makeManager({ freeze: () => still.promise })
  const sandbox = await manager.start({ ...newRequest(), setup: SETUP })
  const freezing = sandbox.freeze()
  expect(sandbox.isFrozen).toBe(false)
  still.resolve(true)
  expect(await freezing).toBe(true)
  expect(sandbox.isFrozen).toBe(true)
  sandbox.thaw()
  expect(sandbox.isFrozen).toBe(false)
  await sandbox.stop()
})

test('a sandbox that was thawed while it froze does not count as frozen', async () => {
  const { manager } = makeManager({ freeze: async () => true })
  const sandbox = await manager.start({ ...newRequest(), setup: SETUP })
  const freezing = sandbox.freeze()
  sandbox.thaw()
  expect(await freezing).toBe(false)
  expect(sandbox.isFrozen).toBe(false)
  await sandbox.stop()
})
