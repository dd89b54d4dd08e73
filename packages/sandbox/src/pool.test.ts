import { isAshError } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import type { Sandbox, SandboxManager, SandboxRequest } from './manager.ts'
import { SandboxPool } from './pool.ts'

/** Starts when told to; a sandbox is its exit and nothing else. */
class FakeManager {
  starts: PromiseWithResolvers<Sandbox>[] = []
  stopped = 0

  start(): Promise<Sandbox> {
    const start = Promise.withResolvers<Sandbox>()
    this.starts.push(start)
    return start.promise
  }

  finishStart(index: number): { exit: () => void } {
    const exited = Promise.withResolvers<void>()
    const sandbox = {
      exited: exited.promise,
      stop: async () => {
        this.stopped++
        exited.resolve()
      },
    }
    this.starts[index]?.resolve(sandbox as unknown as Sandbox)
    return { exit: () => exited.resolve() }
  }
}

const REQUEST = {} as SandboxRequest

function makePool(max: number) {
  const manager = new FakeManager()
  return { manager, pool: new SandboxPool(manager as unknown as SandboxManager, max) }
}

test('requests at the same moment cannot take more than the limit', async () => {
  const { manager, pool } = makePool(3)
  const acquired = Array.from({ length: 10 }, () => pool.acquire(REQUEST))
  expect(manager.starts).toHaveLength(3)
  for (let index = 0; index < 3; index++) manager.finishStart(index)
  const outcomes = await Promise.allSettled(acquired)
  expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
  expect(pool.live).toBe(3)
})

test('a full pool refuses with pool_full and says when to try again', async () => {
  const { pool } = makePool(1)
  void pool.acquire(REQUEST)
  const error = await pool.acquire(REQUEST).catch((thrown: unknown) => thrown)
  expect(isAshError(error, 'pool_full')).toBe(true)
  expect(error).toMatchObject({ retryAfterSeconds: 5, statusCode: 503, isRetryable: true })
  expect((error as Error).message).toContain('ASH_MAX_SANDBOXES')
})

test('a sandbox that is gone gives its slot back', async () => {
  const { manager, pool } = makePool(1)
  const acquired = pool.acquire(REQUEST)
  const { exit } = manager.finishStart(0)
  const sandbox = await acquired
  await expect(pool.acquire(REQUEST)).rejects.toThrow()
  exit()
  await sandbox.exited
  expect(pool.live).toBe(0)
  void pool.acquire(REQUEST)
  expect(manager.starts).toHaveLength(2)
})

test('a failed start gives its slot back and the failure to the caller', async () => {
  const { manager, pool } = makePool(1)
  const acquired = pool.acquire(REQUEST)
  manager.starts[0]?.reject(new Error('no memory'))
  await expect(acquired).rejects.toThrow('no memory')
  expect(pool.live).toBe(0)
})

test('stopping all stops also what is only starting, and forgives what fails to start', async () => {
  const { manager, pool } = makePool(3)
  const acquired = [pool.acquire(REQUEST), pool.acquire(REQUEST), pool.acquire(REQUEST)]
  const outcomes = Promise.allSettled(acquired)
  manager.finishStart(0)
  const stopping = pool.stopAll()
  manager.finishStart(1)
  manager.starts[2]?.reject(new Error('no memory'))
  await stopping
  await outcomes
  expect(manager.stopped).toBe(2)
  expect(pool.live).toBe(0)
})
