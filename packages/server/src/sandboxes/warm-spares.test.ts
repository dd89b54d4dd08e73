import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  DEFAULT_LIMITS,
  loadPrices,
  PolledDisk,
  type Runtime,
  SANDBOX_PATHS,
  SandboxManager,
  SandboxPool,
  sessionDirs,
} from '@ash-ai/sandbox'
import { isAshError, type Language } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import type { AgentForSession } from '../agents/agent-queries.ts'
import { makeBlueprint } from '../agents/blueprint.ts'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { effectiveLimits } from '../sessions/effective-limits.ts'
import { insertSession } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { agentWarm, type SpareKind, type SparePlan, type WarmCount } from './spare-plans.ts'
import { BridgeProvider } from './testing/bridge-provider.ts'
import { WarmSpares } from './warm-spares.ts'

let dir: string
let opened: TestDb
let bridges: BridgeProvider
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ash-spares-'))
  opened = await openSqliteTestDb()
  bridges = new BridgeProvider(dir)
  await mkdir(join(dir, 'agent'))
  await writeFile(join(dir, 'agent', 'CLAUDE.md'), 'You are a test.\n')
})
afterEach(async () => {
  vi.useRealTimers()
  await opened.close()
  await rm(dir, { recursive: true, force: true })
})

const agentOf = (change: Partial<AgentForSession> = {}): AgentForSession => ({
  name: 'agent',
  version: 1,
  contentHash: 'hash',
  fingerprint: 'first',
  dir: join(dir, 'agent'),
  config: {},
  packages: {},
  env: { SECRET: 'of the agent' },
  warm: 2,
  ...change,
})

const KIND: SpareKind = { tenantId: 'default', of: 'agent', name: 'agent' }
const TEMPLATE: SpareKind = { tenantId: 'default', of: 'persistent', name: 'data' }

const blueprintOf = (agent: AgentForSession) => makeBlueprint({ agent, packages: {} })
const codeBlueprint = makeBlueprint({ template: 'data', packages: {} })

interface Options {
  max?: number
  agent?: AgentForSession
  uids?: { base: number; count: number }
}

/** Spares of one agent, which a test can change or delete. */
function makeSpares({ max = 10, agent = agentOf(), uids }: Options = {}) {
  const manager = new SandboxManager({
    provider: bridges.provider,
    runtime: {} as Runtime,
    upstream: { baseUrl: 'http://127.0.0.1:9', apiKey: 'key' },
    modelIdleTimeoutMs: 1_000,
    env: {},
  })
  const pool = new SandboxPool(manager, max)
  const deployed: { agent: AgentForSession | undefined; language: Language; warm?: WarmCount } = {
    agent,
    language: 'python',
  }
  const findPlan = async ({ of }: SpareKind): Promise<SparePlan | undefined> => {
    if (of !== 'agent')
      return (
        deployed.warm && {
          blueprint: codeBlueprint,
          limits: DEFAULT_LIMITS,
          language: deployed.language,
          warm: deployed.warm,
        }
      )
    if (!deployed.agent) return undefined
    const limits = effectiveLimits(DEFAULT_LIMITS, deployed.agent.config.limits)
    return {
      blueprint: blueprintOf(deployed.agent),
      limits,
      language: 'python',
      warm: agentWarm({ warmSpares: 1 }, deployed.agent),
    }
  }
  const warnings: string[] = []
  const warn = (_: unknown, text: string) => warnings.push(text)
  const spares = new WarmSpares({
    dataDir: dir,
    pool,
    disk: new PolledDisk(),
    prices: loadPrices(),
    layers: undefined,
    install: { indexes: {}, pathsInside: () => SANDBOX_PATHS },
    db: opened.db,
    hostId: 'host-a',
    sandboxUids: uids,
    findPlan,
    log: { warn, error: warn } as unknown as FastifyBaseLogger,
  })
  onTestFinished(async () => {
    await spares.close()
    await pool.stopAll()
  })
  const claim = (change: Partial<Parameters<WarmSpares['claim']>[0]> = {}) =>
    spares.claim({ kind: KIND, blueprint: blueprintOf(agent), limits: DEFAULT_LIMITS, ...change })
  return { spares, pool, deployed, warnings, claim, agent }
}

const folders = async () => (await readdir(join(dir, 'sandboxes')).catch(() => [])).sort()

/** In real time, also where timers are not: files and sockets take as long as they take. */
async function until(check: () => unknown, timeoutMs = 10_000): Promise<void> {
  for (const startedMs = performance.now(); ; ) {
    try {
      await check()
      return
    } catch (error) {
      if (performance.now() - startedMs > timeoutMs) throw error
    }
    await new Promise(setImmediate)
  }
}

/** When whatever waits to be tried again has been, even if it failed just now. */
async function afterRetries(check: () => unknown): Promise<void> {
  for (let tries = 1; tries <= 5; tries++) {
    await vi.advanceTimersByTimeAsync(60_000)
    if (
      await until(check, 1_000).then(
        () => true,
        () => false,
      )
    )
      return
  }
  await check()
}

/** What a sandbox is answered that asks for a way out. */
async function connectTo(socketPath: string, authority: string): Promise<number | undefined> {
  const asked = request({ socketPath, method: 'CONNECT', path: authority }).end()
  const [response] = (await once(asked, 'connect')) as [IncomingMessage, Socket]
  response.socket.destroy()
  return response.statusCode
}

test('as many are kept ready as the agent says, and another takes the place of one that is claimed', async () => {
  const { spares, pool, claim } = makeSpares()
  spares.refill(KIND)
  expect(pool.live).toBe(0) // Not while whoever asked is still at it.
  await expect.poll(() => pool.counts().warm).toBe(2)
  const spare = claim()
  expect(spare && (await folders())).toContain(spare?.sessionId)
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warm).toBe(3) // The claimed one is not yet its session's.
  expect(bridges.sandboxes).toHaveLength(3)
})

test('without a word of the agent it is as many as the operator says, and where that is none nothing is asked', async () => {
  const { warm: _, ...silent } = agentOf()
  const { spares, pool } = makeSpares({ agent: silent })
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warm).toBe(1)
  const none = makeSpares({ agent: agentOf({ warm: 0 }) })
  none.spares.refill(KIND)
  await none.spares.close()
  expect(none.pool.live).toBe(0)
})

test('a spare has the SDK and nothing of anybody; a session makes it its own', async () => {
  const { spares, pool, claim } = makeSpares({ agent: agentOf({ warm: 1 }) })
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warm).toBe(1)
  const [inside] = bridges.sandboxes
  expect(inside?.commands.map(({ cmd }) => cmd)).toEqual(['preload'])
  expect(inside?.spec.env).toEqual({})
  expect(JSON.stringify(inside)).not.toContain('of the agent')
  const egress = inside?.spec.egressSocket ?? ''
  expect(await connectTo(egress, 'first.example:443')).toBe(403)
  const spare = claim()
  if (!spare) throw new Error('no spare')
  const identity = { findCredential: vi.fn(async () => undefined), onDenied: vi.fn(), onLimit: vi.fn() }
  spare.bind(identity)
  expect(await connectTo(egress, 'second.example:443')).toBe(403)
  expect(identity.onDenied.mock.calls).toMatchObject([[{ host: 'second.example' }]])
  pool.claim(spare.sandbox.id, {
    tenantId: 'default',
    sessionId: spare.sessionId,
    template: '',
    agentName: 'agent',
    agentVersion: 1,
    evict: async () => false,
  })
  const sandbox = await spare.sandbox.configure({ sessionId: spare.sessionId, env: { A: 'b' } })
  expect(inside?.commands[1]).toMatchObject({
    cmd: 'configure',
    session: { sessionId: spare.sessionId, env: { A: 'b' } },
  })
  expect(pool.stateOf(sandbox.id)).toBe('waiting')
  expect(claim()).toBeUndefined()
})

test.each([
  ['another tenant', () => ({ kind: { ...KIND, tenantId: 'other' } })],
  ['another version', () => ({ blueprint: blueprintOf(agentOf({ version: 2, fingerprint: 'second' })) })],
  [
    'an agent deployed anew under the same name and number',
    () => ({ blueprint: blueprintOf(agentOf({ fingerprint: 'again' })) }),
  ],
  [
    'packages that it lacks',
    () => ({ blueprint: makeBlueprint({ agent: agentOf({ warm: 1 }), packages: { pip: ['six'] } }) }),
  ],
  ['a template of that name', () => ({ kind: { ...KIND, of: 'persistent' as const } })],
  ['other limits', () => ({ limits: { ...DEFAULT_LIMITS, memoryMb: 512 } })],
])('a spare is not for %s', async (_, change) => {
  const { spares, pool, claim } = makeSpares({ agent: agentOf({ warm: 1 }) })
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warm).toBe(1)
  expect(claim(change())).toBeUndefined()
  expect(claim()).toBeDefined()
})

test('spares have the limits of their agent', async () => {
  const config = { limits: { memoryMb: 512 } }
  const { spares, pool, claim } = makeSpares({ agent: agentOf({ warm: 1, config }) })
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warm).toBe(1)
  expect(claim()).toBeUndefined()
  expect(claim({ limits: { ...DEFAULT_LIMITS, memoryMb: 512 } })).toBeDefined()
})

test('a new version drops the spares of the old one, also one that is only being prepared', async () => {
  const { spares, pool, deployed, claim } = makeSpares()
  const { promise, resolve: open } = Promise.withResolvers<void>()
  bridges.gate = promise
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warming).toBe(1)
  const next = agentOf({ version: 2, fingerprint: 'second' })
  deployed.agent = next
  spares.refill(KIND)
  open()
  await expect
    .poll(() => spares.claim({ kind: KIND, blueprint: blueprintOf(next), limits: DEFAULT_LIMITS }))
    .toBeDefined()
  expect(claim()).toBeUndefined()
  await expect.poll(async () => (await folders()).length).toBe(pool.live)
})

test('nothing is left of an agent that is forgotten, nor after a close', async () => {
  const { spares, pool, deployed, claim, agent } = makeSpares()
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warm).toBe(2)
  deployed.agent = undefined
  await spares.forget(KIND)
  expect(claim()).toBeUndefined()
  expect([pool.live, await folders()]).toEqual([0, []])
  deployed.agent = agent
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warming + pool.counts().warm).toBeGreaterThan(0)
  await spares.close()
  expect([pool.live, await folders()]).toEqual([0, []])
  spares.refill(KIND)
  expect(pool.live).toBe(0)
})

test('a spare makes room for a session, and comes back when there is room', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const { spares, pool, warnings, agent } = makeSpares({ max: 2 })
  spares.refill(KIND)
  await until(() => expect(pool.counts().warm).toBe(2))
  const requestOf = (n: number) => ({
    sandboxId: `session-${n}`,
    dirs: sessionDirs(dir, `session-${n}`),
    agentDir: agent.dir,
    owner: undefined,
    limits: DEFAULT_LIMITS,
    network: { mode: 'none' as const },
    budget: undefined as never,
    setup: { sessionId: `session-${n}`, env: {} },
  })
  await pool.acquire(requestOf(1))
  const session = await pool.acquire(requestOf(2))
  expect(pool.counts()).toEqual({ warming: 0, warm: 0, waiting: 0, running: 2 })
  await until(async () => expect(await folders()).toEqual(['session-1', 'session-2']))
  for (let round = 0; round < 3; round++) {
    spares.refill(KIND)
    await vi.advanceTimersByTimeAsync(10_000)
    await until(() => expect(warnings).toEqual(['a spare sandbox could not be kept ready']))
  }
  await session.stop()
  await afterRetries(() => expect(pool.counts().warm).toBe(1))
})

test('a new version does not wait until the old one is tried again', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const { spares, pool, warnings, deployed } = makeSpares({ max: 1 })
  spares.refill(KIND)
  await until(() => expect([pool.counts().warm, warnings.length]).toEqual([1, 1]))
  const next = agentOf({ version: 2, fingerprint: 'second' })
  deployed.agent = next
  spares.renew(KIND)
  const claimed = () => spares.claim({ kind: KIND, blueprint: blueprintOf(next), limits: DEFAULT_LIMITS })
  await until(() => expect(claimed()).toBeDefined())
})

test('a preparation that fails leaves nothing, is told once, and is tried again later', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  bridges.failure = new Error('no memory')
  const { spares, pool, warnings } = makeSpares({ uids: { base: 500_000, count: 10 } })
  spares.refill(KIND)
  await until(() => expect(warnings).toHaveLength(1))
  spares.refill(KIND)
  await vi.advanceTimersByTimeAsync(10_000)
  const uses = () => Array.from({ length: 10 }, (_, n) => spares.usesUid(500_000 + n))
  await until(async () => expect([pool.live, await folders(), uses().includes(true)]).toEqual([0, [], false]))
  expect(warnings).toHaveLength(1)
  bridges.failure = undefined
  await afterRetries(() => expect(pool.counts().warm).toBe(2))
})

test('a spare that dies is replaced, later each time', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const { spares, pool, claim } = makeSpares({ agent: agentOf({ warm: 1 }) })
  spares.refill(KIND)
  await until(() => expect(pool.counts().warm).toBe(1))
  for (const waitMs of [1_000, 2_000, 4_000]) {
    const count = bridges.sandboxes.length
    bridges.sandboxes.at(-1)?.die()
    await until(async () => expect([pool.live, await folders()]).toEqual([0, []]))
    expect(claim()).toBeUndefined()
    await vi.advanceTimersByTimeAsync(waitMs - 1)
    expect(bridges.sandboxes).toHaveLength(count)
    await vi.advanceTimersByTimeAsync(1)
    await until(() => expect(pool.counts().warm).toBe(1))
  }
})

// Giving a folder to another user is for root.
const testAsRoot = test.runIf(process.getuid?.() === 0)

testAsRoot(
  'each spare has a host user that no session and no other spare has, until its files are gone',
  async () => {
    const uids = { base: 500_000, count: 4 }
    await insertSession(opened.db, sessionRow({ owner_id: 'host-a', host_uid: 500_002 }))
    const { spares, pool, claim } = makeSpares({ uids, agent: agentOf({ warm: 3 }) })
    spares.refill(KIND)
    await expect.poll(() => pool.counts().warm).toBe(3)
    expect([0, 1, 2, 3].map((n) => spares.usesUid(500_000 + n))).toEqual([true, true, false, true])
    expect(bridges.sandboxes.map(({ spec }) => spec.owner?.uid).sort()).toEqual([500_000, 500_001, 500_003])
    const spare = claim()
    if (!spare || spare.uid === null) throw new Error('no spare')
    expect(spares.usesUid(spare.uid)).toBe(true)
    await spares.discard(spare)
    expect(spares.usesUid(spare.uid)).toBe(false)
    expect(await folders()).not.toContain(spare.sessionId)
    const used = claim()
    if (!used || used.uid === null) throw new Error('no spare')
    await used.sandbox.stop()
    await expect.poll(() => spares.usesUid(used.uid ?? 0)).toBe(false)
    expect(await folders()).toContain(used.sessionId)
  },
)

testAsRoot('where no host user is free there is no spare', async () => {
  await insertSession(opened.db, sessionRow({ owner_id: 'host-a', host_uid: 500_000 }))
  const { spares, warnings, pool } = makeSpares({ uids: { base: 500_000, count: 1 } })
  spares.refill(KIND)
  await expect.poll(() => warnings).toHaveLength(1)
  expect(pool.live).toBe(0)
})

test('a spare that somebody has claimed does not make room as a spare', async () => {
  const { spares, pool, claim } = makeSpares({ max: 1, agent: agentOf({ warm: 1 }) })
  spares.refill(KIND)
  await expect.poll(() => pool.counts().warm).toBe(1)
  const spare = claim()
  const other = { sandboxId: 'other' } as Parameters<SandboxPool['acquire']>[0]
  const error = await pool.acquire(other).catch((thrown: unknown) => thrown)
  expect(isAshError(error, 'pool_full')).toBe(true)
  expect(pool.stateOf(spare?.sandbox.id ?? '')).toBe('warm')
})

test('a spare of a template has no agent, and nothing imported for one', async () => {
  const { spares, pool, deployed } = makeSpares()
  deployed.warm = { min: 1, target: 0, idle: 1_000 }
  spares.refill(TEMPLATE)
  await expect.poll(() => pool.counts().warm).toBe(1)
  expect(bridges.sandboxes[0]?.commands).toMatchObject([
    { cmd: 'preload', interpreter: { language: 'python' } },
  ])
  expect(bridges.sandboxes[0]?.spec.agentDir).toBeUndefined()
  const spare = spares.claim({ kind: TEMPLATE, blueprint: codeBlueprint, limits: DEFAULT_LIMITS })
  expect(spare?.isSetUp).toBe(true)
})

test('as many as the template says are kept while it is used, and only the least of it afterwards', async () => {
  const { spares, pool, deployed } = makeSpares()
  deployed.warm = { min: 1, target: 3, idle: 1_000 }
  spares.refill(TEMPLATE)
  await expect.poll(() => pool.counts().warm).toBe(1)
  spares.noteUse(TEMPLATE, deployed.warm)
  await expect.poll(() => pool.counts().warm).toBe(3)
  await expect.poll(() => pool.counts().warm, { timeout: 10_000 }).toBe(1)
  spares.noteUse(TEMPLATE, deployed.warm)
  await expect.poll(() => pool.counts().warm).toBe(3)
})

test('a template that keeps none any more has none', async () => {
  const { spares, pool, deployed } = makeSpares()
  deployed.warm = { min: 2, target: 0, idle: 1_000 }
  spares.renew(TEMPLATE)
  await expect.poll(() => pool.counts().warm).toBe(2)
  deployed.warm = { min: 0, target: 0, idle: 1_000 }
  spares.renew(TEMPLATE)
  await expect.poll(() => pool.live).toBe(0)
  spares.noteUse(TEMPLATE, deployed.warm)
  expect(pool.live).toBe(0)
})

test('a template whose first language is another keeps no interpreter of the one before', async () => {
  const { spares, pool, deployed } = makeSpares()
  deployed.warm = { min: 1, target: 0, idle: 1_000 }
  spares.renew(TEMPLATE)
  await expect.poll(() => pool.counts().warm).toBe(1)
  deployed.language = 'javascript'
  spares.renew(TEMPLATE)
  await expect.poll(() => bridges.sandboxes.length).toBe(2)
  await expect.poll(() => pool.counts().warm).toBe(1)
  expect(bridges.sandboxes[1]?.commands).toMatchObject([{ interpreter: { language: 'javascript' } }])
})
