import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { canFreeze, unifiedFreezer, v1Freezer } from './cgroup-freezer.ts'

// How it waits and gives up, in ordinary folders. What the kernel does with them is for test/isolation and test/vm.

const events = (folder: string, frozen: 0 | 1) =>
  writeFile(join(folder, 'cgroup.events'), `populated 1\nfrozen ${frozen}\n`)

async function unifiedGroup(): Promise<string> {
  const folder = await tempDir()
  await writeFile(join(folder, 'cgroup.freeze'), '0')
  await events(folder, 0)
  return folder
}

const written = (folder: string) => readFile(join(folder, 'cgroup.freeze'), 'utf8')

test('a group is frozen when the kernel says so, not when it was asked', async () => {
  const folder = await unifiedGroup()
  let outcome: boolean | undefined
  const freezing = unifiedFreezer(folder)
    .freeze()
    .then((isFrozen) => {
      outcome = isFrozen
    })
  expect(await written(folder)).toBe('1')
  expect(outcome).toBeUndefined()
  await events(folder, 1)
  await freezing
  expect(outcome).toBe(true)
})

test('what does not stop in time is let go', async () => {
  const folder = await unifiedGroup()
  const startedMs = performance.now()
  expect(await unifiedFreezer(folder).freeze()).toBe(false)
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(1_999)
  expect(await written(folder)).toBe('0')
})

test('a thaw ends the wait for the freeze', async () => {
  const folder = await unifiedGroup()
  const freezer = unifiedFreezer(folder)
  const freezing = freezer.freeze()
  freezer.thaw()
  expect(await freezing).toBe(false)
  expect(await written(folder)).toBe('0')
})

test('a kernel without it and a group that is gone cannot be frozen, and a thaw there is nothing', async () => {
  const folder = await tempDir()
  expect(canFreeze(folder)).toBe(false)
  expect(await unifiedFreezer(folder).freeze()).toBe(false)
  unifiedFreezer(join(folder, 'gone')).thaw()
})

test('under version 1 the state is read where it is written', async () => {
  const folder = await tempDir()
  await writeFile(join(folder, 'freezer.state'), 'THAWED')
  expect(await v1Freezer(folder).freeze()).toBe(true)
  v1Freezer(folder).thaw()
  expect(await readFile(join(folder, 'freezer.state'), 'utf8')).toBe('THAWED')
})
