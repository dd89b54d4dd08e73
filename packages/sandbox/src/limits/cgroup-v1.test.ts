import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { openCgroupV1 } from './cgroup-v1.ts'

// In ordinary folders. What the kernel does with them is for test/isolation.

test('a group that a killed server had begun to remove is removed from every hierarchy', async () => {
  const dir = await tempDir()
  const v1 = Object.fromEntries(
    ['memory', 'pids', 'cpu', 'freezer'].map((controller) => [controller, join(dir, controller)]),
  )
  for (const folder of Object.values(v1)) await mkdir(folder)
  for (const controller of ['cpu', 'freezer'])
    await mkdir(join(dir, controller, 'ash', 'left'), { recursive: true })
  const backend = await openCgroupV1({ v1, v2: undefined }, 'ash')
  await backend?.removeLeftovers()
  expect(await readdir(join(dir, 'cpu', 'ash'))).toEqual([])
  expect(await readdir(join(dir, 'freezer', 'ash'))).toEqual([])
})
