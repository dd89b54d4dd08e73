import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { hostInterpreters } from './host-interpreters.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ash-interpreters-'))
  await mkdir(join(folder, 'bin'))
  await writeFile(join(folder, 'bin', 'node'), 'node 20')
  await writeFile(join(folder, 'bin', 'python3.11'), 'python 3.11')
  await symlink('python3.11', join(folder, 'bin', 'python3'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

const now = () => hostInterpreters([join(folder, 'none'), join(folder, 'bin')])

test('the same programs are the same, whatever else is there', async () => {
  const before = await now()
  await writeFile(join(folder, 'bin', 'perl'), 'perl')
  expect(await now()).toBe(before)
})

test.each<[string, () => Promise<void>]>([
  ['Node was upgraded in its place', () => writeFile(join(folder, 'bin', 'node'), 'node 22.1')],
  ['Node is gone', () => rm(join(folder, 'bin', 'node'))],
  [
    'another Python is the default',
    async () => {
      await writeFile(join(folder, 'bin', 'python3.12'), 'python 3.12')
      await rm(join(folder, 'bin', 'python3'))
      await symlink('python3.12', join(folder, 'bin', 'python3'))
    },
  ],
  [
    'one that is found earlier was added',
    async () => {
      await mkdir(join(folder, 'none'))
      await writeFile(join(folder, 'none', 'node'), 'node 20')
    },
  ],
])('it tells when %s', async (_, change) => {
  const before = await now()
  await change()
  expect(await now()).not.toBe(before)
})
