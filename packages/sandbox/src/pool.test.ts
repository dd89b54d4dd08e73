import { isAshError } from '@ash-ai/shared'
import { expect, test, vi } from 'vitest'
import type { InterpreterRequest } from './interpreters/start-interpreter.ts'
import type { PreparedSandbox, Sandbox, SandboxManager, SandboxRequest } from './manager.ts'
import { type PoolUse, SandboxPool } from './pool.ts'
import type { SandboxChange, SandboxRow, SandboxStore } from './sandbox-store.ts'

/** A sandbox is its exit and nothing else. */
interface FakeSandbox {
  id: string
  exited: Promise<void>
  exit: () => void
  stop: () => Promise<void>
}

/** Starts when told to, or at once. */
class FakeManager {
  readonly starts: PromiseWithResolvers<FakeSandbox>[] = []
  readonly alive = new Set<string>()
  stopped = 0
  startsAtOnce = false

  start = ({ sandboxId }: Pick<SandboxRequest, 'sandboxId'>): Promise<FakeSandbox> => {
    const start = Promise.withResolvers<FakeSandbox>()
    this.starts.push(start)
    this.alive.add(sandboxId)
    if (this.startsAtOnce) start.resolve(this.#make(sandboxId))
    return start.promise
  }
  prepare = this.start
  startInterpreter = this.start

  finishStart(index: number): FakeSandbox {
    const sandbox = this.#make([...this.alive][index] ?? '')
    this.starts[index]?.resolve(sandbox)
    return sandbox
  }

  #make(id: string): FakeSandbox {
    const exited = Promise.withResolvers<void>()
    const exit = () => {
      this.alive.delete(id)
      exited.resolve()
    }
    return {
      id,
      exited: exited.promise,
      exit,
      stop: async () => {
        this.stopped++
        exit()
        await exited.promise
      },
    }
  }
}

let made = 0
const newRequest = () => ({ sandboxId: `sandbox-${++made}` }) as SandboxRequest
const newInterpreter = () => ({ sandboxId: `sandbox-${++made}` }) as InterpreterRequest

function makePool(max: number, options: { store?: SandboxStore; startsAtOnce?: boolean } = {}) {
  const manager = new FakeManager()
  manager.startsAtOnce = options.startsAtOnce ?? false
  return { manager, pool: new SandboxPool(manager as unknown as SandboxManager, max, options.store) }
}

const TENANT = { tenantId: 'default', template: 'default', agentName: 'agent', agentVersion: 1 }
const useBy = (sessionId: string | null, evict: PoolUse['evict'] = async () => false): PoolUse => ({
  ...TENANT,
  sessionId,
  evict,
})

/** A session that leaves when asked to, and tells that it was asked. */
async function acquireWilling(pool: SandboxPool, name: string, asked: string[] = []): Promise<Sandbox> {
  const evict = async () => {
    asked.push(name)
    await sandbox.stop()
    return true
  }
  const sandbox = await pool.acquire(newRequest(), useBy(name, evict))
  return sandbox
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'no error',
    (error: unknown) => (isAshError(error) ? error.code : error),
  )

test('requests at the same moment cannot take more than the limit', async () => {
  const { manager, pool } = makePool(3)
  const acquired = Array.from({ length: 10 }, () => pool.acquire(newRequest(), useBy('s')))
  const outcomes = Promise.allSettled(acquired)
  expect(manager.starts).toHaveLength(3)
  for (let index = 0; index < 3; index++) manager.finishStart(index)
  expect((await outcomes).filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
  expect(pool.live).toBe(3)
})

test('a full pool refuses with pool_full and says when to try again', async () => {
  const { pool } = makePool(1)
  void pool.acquire(newRequest())
  const error = await pool.acquire(newRequest()).catch((thrown: unknown) => thrown)
  expect(isAshError(error, 'pool_full')).toBe(true)
  expect(error).toMatchObject({ retryAfterSeconds: 5, statusCode: 503, isRetryable: true })
  expect((error as Error).message).toContain('ASH_MAX_SANDBOXES')
})

test('a sandbox that is gone gives its slot back', async () => {
  const { manager, pool } = makePool(1)
  const acquired = pool.acquire(newRequest())
  const { exit } = manager.finishStart(0)
  const sandbox = await acquired
  await expect(pool.acquire(newRequest())).rejects.toThrow()
  exit()
  await sandbox.exited
  expect(pool.live).toBe(0)
  void pool.acquire(newRequest())
  expect(manager.starts).toHaveLength(2)
})

test('a failed start gives its slot back and the failure to the caller', async () => {
  const { manager, pool } = makePool(1)
  const acquired = pool.acquire(newRequest(), useBy('s'))
  manager.starts[0]?.reject(new Error('no memory'))
  await expect(acquired).rejects.toThrow('no memory')
  expect(pool.live).toBe(0)
})

test('stopping all stops also what is only starting, forgives what fails to start, and starts nothing more', async () => {
  const { manager, pool } = makePool(3)
  const acquired = [1, 2, 3].map(() => pool.acquire(newRequest(), useBy('s')))
  const outcomes = Promise.allSettled(acquired)
  manager.finishStart(0)
  const stopping = pool.stopAll()
  manager.finishStart(1)
  manager.starts[2]?.reject(new Error('no memory'))
  await stopping
  await outcomes
  expect(manager.stopped).toBe(2)
  expect(pool.live).toBe(0)
  expect(await codeOf(pool.acquire(newRequest()))).toBe('server_stopping')
})

test('a sandbox warms, then waits, and runs when told to', async () => {
  const { manager, pool } = makePool(3)
  const request = newRequest()
  const acquired = pool.acquire(request, useBy('s'))
  expect(pool.stateOf(request.sandboxId)).toBe('warming')
  manager.finishStart(0)
  await acquired
  expect(pool.counts()).toEqual({ warming: 0, warm: 0, waiting: 1, running: 0 })
  pool.setState(request.sandboxId, 'running')
  expect(pool.counts()).toEqual({ warming: 0, warm: 0, waiting: 0, running: 1 })
  pool.setState(request.sandboxId, 'waiting')
  expect(pool.stateOf(request.sandboxId)).toBe('waiting')
})

test('the one that was used longest ago of those that wait makes room', async () => {
  const asked: string[] = []
  const { pool } = makePool(3, { startsAtOnce: true })
  const [first, second] = [await acquireWilling(pool, 'a', asked), await acquireWilling(pool, 'b', asked)]
  await acquireWilling(pool, 'c', asked)
  pool.touch(first.id)
  pool.setState(second.id, 'running')
  pool.setState(second.id, 'waiting')
  for (const name of ['d', 'e', 'f']) await acquireWilling(pool, name, asked)
  expect(asked).toEqual(['c', 'a', 'b'])
  expect(pool.live).toBe(3)
})

test('work in flight, a start and a build are never asked to leave', async () => {
  const { manager, pool } = makePool(3, { startsAtOnce: true })
  const asked: string[] = []
  const running = await acquireWilling(pool, 'running', asked)
  pool.setState(running.id, 'running')
  await pool.acquire(newRequest())
  manager.startsAtOnce = false
  void acquireWilling(pool, 'starting', asked)
  expect(() => pool.assertRoom()).toThrow('All 3 sandboxes are in use')
  expect(await codeOf(pool.acquire(newRequest(), useBy('s')))).toBe('pool_full')
  expect(asked).toEqual([])
})

test('there is room where something could leave', async () => {
  const { pool } = makePool(1, { startsAtOnce: true })
  pool.assertRoom()
  await acquireWilling(pool, 'a')
  pool.assertRoom()
})

test('where the first has become busy or fails, the next is asked', async () => {
  const { pool } = makePool(3, { startsAtOnce: true })
  const asked: string[] = []
  await pool.acquire(
    newRequest(),
    useBy('busy', async () => false),
  )
  const failing = () => Promise.reject(new Error('disk full'))
  await pool.acquire(newRequest(), useBy('failing', failing))
  await acquireWilling(pool, 'willing', asked)
  await pool.acquire(newRequest(), useBy('new'))
  expect(asked).toEqual(['willing'])
  expect(pool.live).toBe(3)
})

test('one that says it leaves, and does not, is stopped', async () => {
  const { manager, pool } = makePool(1, { startsAtOnce: true })
  await pool.acquire(
    newRequest(),
    useBy('a', async () => true),
  )
  await pool.acquire(newRequest(), useBy('b'))
  expect(manager.stopped).toBe(1)
  expect(manager.alive.size).toBe(1)
})

test('the slot of whoever leaves goes to the one that asked for it', async () => {
  const { pool } = makePool(1, { startsAtOnce: true })
  const first = await pool.acquire(
    newRequest(),
    useBy('a', async () => {
      await first.stop()
      await thief
      return true
    }),
  )
  // Tries at the very moment the sandbox is gone.
  const thief = first.exited.then(() => codeOf(pool.acquire(newRequest())))
  await pool.acquire(newRequest(), useBy('b'))
  expect(await thief).toBe('pool_full')
})

test('an eviction that takes for ever is not waited for', async () => {
  vi.useFakeTimers()
  try {
    const { pool } = makePool(1, { startsAtOnce: true })
    await pool.acquire(
      newRequest(),
      useBy('stuck', () => new Promise(() => {})),
    )
    const code = codeOf(pool.acquire(newRequest(), useBy('b')))
    await vi.advanceTimersByTimeAsync(60_000)
    expect(await code).toBe('pool_full')
    expect(await codeOf(pool.acquire(newRequest(), useBy('c')))).toBe('pool_full')
  } finally {
    vi.useRealTimers()
  }
})

test('a spare comes to be only where a slot is free, and leaves after every session that waits', async () => {
  const { manager, pool } = makePool(2, { startsAtOnce: true })
  const asked: string[] = []
  const spare = await pool.prepare(
    newRequest(),
    useBy(null, async () => {
      asked.push('spare')
      await spare.stop()
      return true
    }),
  )
  expect(pool.stateOf(spare.id)).toBe('warm')
  await acquireWilling(pool, 'a', asked)
  expect(await codeOf(pool.prepare(newRequest(), useBy(null)))).toBe('pool_full')
  const busy = await acquireWilling(pool, 'b', asked)
  pool.setState(busy.id, 'running')
  await acquireWilling(pool, 'c', asked)
  expect(asked).toEqual(['a', 'spare'])
  expect(manager.alive.size).toBe(2)
})

test('a claimed spare is a session, and cannot be claimed twice or after its end', async () => {
  const { pool } = makePool(2, { startsAtOnce: true })
  const spare = await pool.prepare(newRequest(), useBy(null))
  pool.claim(spare.id, useBy('s'))
  expect(pool.stateOf(spare.id)).toBe('waiting')
  expect(() => pool.claim(spare.id, useBy('t'))).toThrow('ended before it was used')
  const other = await pool.prepare(newRequest(), useBy(null))
  await other.stop()
  expect(() => pool.claim(other.id, useBy('s'))).toThrow('ended before it was used')
})

/** The same numbers in each run: a failure can be looked at. */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return state / 2_147_483_648
  }
}

test.each([1, 2, 3, 4, 5])(
  'with seed %s, 200 at once over 5 slots: never more than 5 live, and nobody waits for ever',
  async (seed) => {
    const { manager, pool } = makePool(5, { startsAtOnce: true })
    const random = randomFrom(seed)
    const pause = () => new Promise<void>((resolve) => setTimeout(resolve, random() * 5))
    let most = 0
    const watch = () => {
      most = Math.max(most, pool.live, manager.alive.size)
    }
    const session = async (name: string) => {
      await pause()
      const evict = async () => {
        if (random() < 0.3) throw new Error('cannot be saved')
        if (random() < 0.3) return false
        if (random() < 0.5) await pause()
        if (random() < 0.5) await sandbox.stop()
        watch()
        return true
      }
      const sandbox: Sandbox = await pool.acquire(newRequest(), useBy(name, evict))
      watch()
      if (random() < 0.2) await sandbox.stop()
      pool.setState(sandbox.id, 'running')
      await pause()
      pool.setState(sandbox.id, 'waiting')
      watch()
    }
    const outcomes = await Promise.all(Array.from({ length: 200 }, (_, n) => codeOf(session(`s${n}`))))
    expect(most).toBe(5)
    expect(new Set(outcomes)).toEqual(new Set(['no error', 'pool_full']))
    await pool.stopAll()
    expect(pool.live).toBe(0)
    expect(manager.alive.size).toBe(0)
  },
)

/** What is stored, and each call that stored it. */
class MemoryStore implements SandboxStore {
  readonly rows = new Map<string, SandboxRow>()
  readonly calls: string[] = []

  async put(row: SandboxRow): Promise<void> {
    this.calls.push(`put ${row.state}`)
    this.rows.set(row.id, row)
  }

  async remove(id: string): Promise<void> {
    this.calls.push('remove')
    this.rows.delete(id)
  }

  async setStates(changes: SandboxChange[]): Promise<void> {
    this.calls.push(`setStates ${changes.map(({ state }) => state).join()}`)
    for (const change of changes) {
      const row = this.rows.get(change.id)
      if (row) Object.assign(row, change)
    }
  }
}

test('what comes, is claimed and goes is stored at once, what turns change once a second', async () => {
  vi.useFakeTimers({ now: 1_000_000 })
  try {
    const store = new MemoryStore()
    const { pool } = makePool(2, { store, startsAtOnce: true })
    const spare: PreparedSandbox = await pool.prepare(newRequest(), useBy(null))
    await vi.advanceTimersByTimeAsync(0)
    expect(store.calls).toEqual(['put warming', 'put warm'])
    pool.claim(spare.id, useBy('s'))
    await vi.advanceTimersByTimeAsync(0)
    const row = { ...TENANT, id: spare.id, sessionId: 's', createdAt: 1_000_000 }
    expect([...store.rows.values()]).toEqual([{ ...row, state: 'waiting', lastUsedAt: 1_000_000 }])
    await vi.advanceTimersByTimeAsync(500)
    for (let turn = 0; turn < 50; turn++) {
      pool.setState(spare.id, 'waiting')
      pool.setState(spare.id, 'running')
    }
    await vi.advanceTimersByTimeAsync(999)
    expect(store.calls).toHaveLength(3)
    await vi.advanceTimersByTimeAsync(1)
    expect(store.calls.slice(3)).toEqual(['setStates running'])
    expect([...store.rows.values()]).toEqual([{ ...row, state: 'running', lastUsedAt: 1_000_500 }])
    await spare.stop()
    await vi.advanceTimersByTimeAsync(0)
    expect(store.rows.size).toBe(0)
  } finally {
    vi.useRealTimers()
  }
})

test('a build is not stored', async () => {
  const store = new MemoryStore()
  const { pool } = makePool(1, { store, startsAtOnce: true })
  await pool.acquire(newRequest())
  await pool.stopAll()
  expect(store.calls).toEqual([])
})

test('an interpreter takes a slot, runs from the start, and is never asked to leave', async () => {
  const { pool } = makePool(1, { startsAtOnce: true })
  const asked: string[] = []
  await acquireWilling(pool, 'session', asked)
  const interpreter = await pool.acquireInterpreter(newInterpreter(), useBy('run'))
  expect(asked).toEqual(['session'])
  expect(pool.stateOf(interpreter.id)).toBe('running')
  expect(await codeOf(pool.acquireInterpreter(newInterpreter(), useBy('other')))).toBe('pool_full')
  await interpreter.stop()
  expect(pool.live).toBe(0)
})

test('a spare interpreter takes only a free slot, and runs when it is claimed', async () => {
  const { pool } = makePool(1, { startsAtOnce: true })
  const spare = await pool.prepareInterpreter(newInterpreter(), useBy(null))
  expect(pool.counts()).toMatchObject({ warm: 1 })
  expect(await codeOf(pool.prepareInterpreter(newInterpreter(), useBy(null)))).toBe('pool_full')
  pool.claim(spare.id, useBy('run'), 'running')
  expect(pool.stateOf(spare.id)).toBe('running')
  await spare.stop()
  expect(await codeOf(Promise.resolve().then(() => pool.claim(spare.id, useBy('late'))))).toBe('sandbox_died')
})
