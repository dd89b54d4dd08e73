import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ignoreMissing, killPids, removeGroup, writeControl } from './cgroup-files.ts'

// How files behave, in an ordinary folder. What the kernel does with them is for test/isolation and test/vm.

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ash-cgroup-files-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

test('a control file that is not there is missing, and is not made', async () => {
  await expect(writeControl(folder, 'memory.swap.max', 0)).rejects.toMatchObject({ code: 'ENOENT' })
  await expect(writeControl(folder, 'memory.swap.max', 0).catch(ignoreMissing)).resolves.toBeUndefined()
  expect(await readdir(folder)).toEqual([])
})

test('a limit that may not be written is not passed over', () => {
  const denied = Object.assign(new Error('denied'), { code: 'EACCES' })
  expect(() => ignoreMissing(denied)).toThrow('denied')
})

test('a value is written to the file that is there', async () => {
  await writeFile(join(folder, 'pids.max'), '')
  await writeControl(folder, 'pids.max', 30)
  expect(await readFile(join(folder, 'pids.max'), 'utf8')).toBe('30')
})

test('killing reaches what is listed, without help of the kernel', async () => {
  const child = spawn('sleep', ['300'], { stdio: 'ignore' })
  const exited = once(child, 'exit')
  await writeFile(join(folder, 'cgroup.procs'), `${child.pid}\n`)
  const killed = killPids(folder)
  expect((await exited)[1]).toBe('SIGKILL')
  await writeFile(join(folder, 'cgroup.procs'), '')
  await killed
})

test('a group that is gone needs neither killing nor removing', async () => {
  await killPids(join(folder, 'gone'))
  await removeGroup(join(folder, 'gone'))
})
