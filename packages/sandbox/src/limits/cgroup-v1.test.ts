import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { findCgroupMounts } from './cgroup-mounts.ts'
import { openCgroupV1 } from './cgroup-v1.ts'
import { DEFAULT_LIMITS } from './resource-limits.ts'

// In ordinary folders.
test('a group that a killed server had begun to remove is removed from every hierarchy', async () => {
  const dir = await tempDir()
  const folders = Object.fromEntries(
    ['memory', 'pids', 'cpu', 'freezer'].map((controller) => [controller, join(dir, controller)]),
  )
  for (const folder of Object.values(folders)) await mkdir(folder)
  for (const controller of ['cpu', 'freezer'])
    await mkdir(join(dir, controller, 'ash', 'left'), { recursive: true })
  const backend = await openCgroupV1({ v1: folders, v2: undefined }, 'ash')
  await backend?.removeLeftovers()
  expect(await readdir(join(dir, 'cpu', 'ash'))).toEqual([])
  expect(await readdir(join(dir, 'freezer', 'ash'))).toEqual([])
})

const { v1 } = await findCgroupMounts()
const hasV1 = process.getuid?.() === 0 && v1.freezer !== undefined && v1.memory !== undefined

test.runIf(hasV1)(
  'without version 2 beside it, a frozen tree stands still, goes on, and dies frozen',
  async () => {
    const backend = await openCgroupV1({ v1, v2: undefined }, `ash-v1-${process.pid}`)
    const group = await backend?.create('frozen', DEFAULT_LIMITS)
    if (!backend || !group) throw new Error('no control groups')
    const child = spawn('bash', ['-c', 'read -r _; while :; do echo x; done'], {
      stdio: ['pipe', 'pipe', 'ignore'],
    })
    const exited = once(child, 'exit')
    await group.add(child.pid ?? 0)
    child.stdin.end('go\n')
    await once(child.stdout, 'data')
    expect(group.pids()).toEqual([child.pid])
    expect(await group.freeze()).toBe(true)
    expect(stateOf(child.pid)).toBe('D')
    group.thaw()
    child.stdout.resume()
    await expect.poll(() => stateOf(child.pid)).not.toBe('D')
    expect(await group.freeze()).toBe(true)
    await group.kill()
    expect((await exited)[1]).toBe('SIGKILL')
    await group.remove()
    await backend.close()
  },
)

/** R: runs, S: sleeps, D: cannot be woken, as what this controller has frozen. */
const stateOf = (pid: number | undefined) => /\) (\w) /.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.[1]
