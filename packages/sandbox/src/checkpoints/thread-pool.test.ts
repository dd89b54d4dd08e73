import { expect, onTestFinished, test } from 'vitest'
import { ThreadPool } from './thread-pool.ts'

function openPool(threads = 1): ThreadPool {
  const pool = new ThreadPool(new URL('./testing/fragile-thread.ts', import.meta.url), {
    threads,
    workerData: {},
  })
  onTestFinished(() => pool.close())
  return pool
}

test('tasks beyond the threads wait for their turn', async () => {
  const pool = openPool(2)
  const tasks = ['a', 'b', 'c', 'd', 'e']
  expect(await Promise.all(tasks.map((task) => pool.run(task)))).toEqual(tasks.map((task) => `${task} done`))
})

test('an error fails its own task only', async () => {
  const pool = openPool()
  const failing = pool.run('fault')
  const next = pool.run('next')
  await expect(failing).rejects.toMatchObject({ code: 'disk_full', message: 'no room' })
  expect(await next).toBe('next done')
})

test.each(['exit', 'throw'])(
  'a thread that dies (%s) fails its task, and another takes its place',
  async (how) => {
    const pool = openPool()
    const failing = pool.run(how)
    const next = pool.run('next')
    await expect(failing).rejects.toMatchObject({ code: 'checkpoint_failed' })
    expect(await next).toBe('next done')
  },
)

test('closing fails what runs, what waits and what comes later', async () => {
  const pool = openPool()
  const all = Promise.allSettled([pool.run('hang'), pool.run('waits')])
  await pool.close()
  for (const { status } of await all) expect(status).toBe('rejected')
  await expect(pool.run('late')).rejects.toMatchObject({ code: 'server_stopping' })
})
