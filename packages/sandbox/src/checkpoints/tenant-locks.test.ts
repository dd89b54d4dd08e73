import { expect, test } from 'vitest'
import { TenantLocks } from './tenant-locks.ts'

/** Work that says when it runs and ends when it is told to. */
function step(log: string[], name: string) {
  const { promise, resolve } = Promise.withResolvers<void>()
  const work = async () => {
    log.push(`${name} begins`)
    await promise
    log.push(`${name} ends`)
  }
  return { work, end: resolve }
}

test('those that share run together; one that excludes waits for them, and later ones for it', async () => {
  const [locks, log] = [new TenantLocks(), [] as string[]]
  const [a, b, sweep, c] = ['a', 'b', 'sweep', 'c'].map((name) => step(log, name)) as [Step, Step, Step, Step]
  const all = [
    locks.hold('t', false, a.work),
    locks.hold('t', false, b.work),
    locks.hold('t', true, sweep.work),
    locks.hold('t', false, c.work),
  ]
  await expect.poll(() => log).toEqual(['a begins', 'b begins'])
  b.end()
  a.end()
  await expect.poll(() => log.at(-1)).toBe('sweep begins')
  sweep.end()
  c.end()
  await Promise.all(all)
  expect(log.slice(-3)).toEqual(['sweep ends', 'c begins', 'c ends'])
})
type Step = ReturnType<typeof step>

test('tenants do not wait for each other, and a failure lets the next one in', async () => {
  const locks = new TenantLocks()
  const held = step([], 'held')
  const holding = locks.hold('one', true, held.work)
  await expect(locks.hold('two', true, async () => Promise.reject(new Error('no')))).rejects.toThrow('no')
  expect(await locks.hold('two', true, async () => 'in')).toBe('in')
  held.end()
  await holding
})
