import { execFile } from 'node:child_process'
import { chmod, cp, mkdir, readdir, readFile, rename, stat, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { isAshError } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { assertReachable, type RuntimeSource, removeOtherRuntimes, stageRuntime } from './runtime.ts'
import { tempDir } from './testing/temp-dir.ts'

const run = promisify(execFile)
const isRoot = process.getuid?.() === 0
const NOBODY = { uid: 65534, gid: 65534 }

async function makeSource(dir: string, claudeMode = 0o755): Promise<RuntimeSource> {
  await mkdir(dir, { recursive: true })
  const source = { node: join(dir, 'node'), bridge: join(dir, 'bridge.mjs'), claude: join(dir, 'claude') }
  await cp('/bin/true', source.node, { dereference: true })
  await writeFile(source.bridge, 'export {}\n')
  await writeFile(source.claude, '#!/bin/sh\necho staged\n', { mode: claudeMode })
  await chmod(source.claude, claudeMode)
  return source
}

const modeOf = async (path: string) => (await stat(path)).mode & 0o7777

test('a staged runtime has Node execute-only, the bridge readable and claude executable', async () => {
  const dir = await tempDir()
  const runtime = await stageRuntime(join(dir, 'runtime'), await makeSource(join(dir, 'source')))
  expect(await modeOf(runtime.node)).toBe(0o111)
  expect(await modeOf(runtime.bridge)).toBe(0o444)
  expect((await modeOf(runtime.claude)) & 0o555).toBe(0o555)
  expect((await readdir(runtime.dir)).sort()).toEqual([
    'bridge',
    'claude',
    'compiled',
    'etc',
    'kernels',
    'node',
    'pty',
  ])
  expect((await readdir(runtime.etc)).sort()).toEqual([
    'group',
    'hosts',
    'nsswitch.conf',
    'passwd',
    'resolv.conf',
  ])
  expect(await readdir(join(dir, 'runtime'))).toEqual([runtime.dir.split('/').at(-1)])
})

test('staging again finds what is there, and a changed bridge gets a folder of its own', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  const first = await stageRuntime(join(dir, 'runtime'), source)
  const { ino } = await stat(first.bridge)
  expect(await stageRuntime(join(dir, 'runtime'), source)).toEqual(first)
  expect((await stat(first.bridge)).ino).toBe(ino)

  await writeFile(source.bridge, 'export const changed = true\n')
  const second = await stageRuntime(join(dir, 'runtime'), source)
  expect(second.dir).not.toBe(first.dir)
  expect(await readFile(second.bridge, 'utf8')).toContain('changed')
  expect(await readFile(first.bridge, 'utf8')).not.toContain('changed')
})

async function writeSdk(source: RuntimeSource, content: string): Promise<void> {
  const folder = join(dirname(source.bridge), 'compiled')
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'sdk.cjs'), content)
}

test('an agent SDK beside the bridge is staged beside it, and a changed one gets a folder of its own', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  const without = await stageRuntime(join(dir, 'runtime'), source)
  await writeSdk(source, 'exports.query = 1\n')
  const first = await stageRuntime(join(dir, 'runtime'), source)
  await writeSdk(source, 'exports.query = 2\n')
  const second = await stageRuntime(join(dir, 'runtime'), source)
  expect(new Set([without.dir, first.dir, second.dir]).size).toBe(3)
  expect(without.compiled).toBeUndefined()
  const folder = second.compiled ?? ''
  expect(dirname(folder)).toBe(dirname(second.bridge))
  expect(await modeOf(folder)).toBe(0o755)
  expect(await readFile(join(folder, 'sdk.cjs'), 'utf8')).toBe('exports.query = 2\n')
  expect(await modeOf(join(folder, 'sdk.cjs'))).toBe(0o444)
})

test('the programs that run code are staged, wherever they come from', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  expect((await stageRuntime(join(dir, 'runtime'), source)).kernels).toBeUndefined()
  const kernels = join(dir, 'kernels')
  await mkdir(kernels)
  await writeFile(join(kernels, 'python-kernel.py'), 'print(1)\n')
  const runtime = await stageRuntime(join(dir, 'runtime'), { ...source, kernels })
  const staged = join(runtime.kernels ?? '', 'python-kernel.py')
  expect(await readFile(staged, 'utf8')).toBe('print(1)\n')
  expect(await modeOf(staged)).toBe(0o444)
  await rename(kernels, join(dirname(source.bridge), 'kernels'))
  expect(await stageRuntime(join(dir, 'runtime'), source)).toEqual(runtime)
})

test('a cache is staged too, and one made anew from the same files asks for no new folder', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  await writeSdk(source, 'exports.query = 1\n')
  const cache = join(dirname(source.bridge), 'compiled', 'sdk.cjs.cache')
  await writeFile(cache, 'one')
  const first = await stageRuntime(join(dir, 'runtime'), source)
  await writeFile(cache, 'another')
  expect(await stageRuntime(join(dir, 'runtime'), source)).toEqual(first)
  expect(await readFile(join(first.compiled ?? '', 'sdk.cjs.cache'), 'utf8')).toBe('one')
})

test('what is read from two files is not mistaken for the same bytes cut elsewhere', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  const stageWith = async (bridge: string, sdk: string) => {
    await writeFile(source.bridge, bridge)
    await writeSdk(source, sdk)
    return (await stageRuntime(join(dir, 'runtime'), source)).dir
  }
  expect(await stageWith('ab', 'c')).not.toBe(await stageWith('a', 'bc'))
})

test('servers that stage at once agree on one folder and leave nothing else', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  const staged = await Promise.all(
    Array.from({ length: 8 }, () => stageRuntime(join(dir, 'runtime'), source)),
  )
  expect(new Set(staged.map((runtime) => runtime.dir)).size).toBe(1)
  expect(await readdir(join(dir, 'runtime'))).toHaveLength(1)
})

test('a source below a folder that nobody else may search still gives a runtime for everybody', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'home', 'checkout'))
  await chmod(join(dir, 'home'), 0o700)
  const runtime = await stageRuntime(join(dir, 'runtime'), source)
  await assertReachable(runtime.node)
  const someone = isRoot ? NOBODY : {}
  await run(runtime.node, [], { ...someone, cwd: '/' })
  expect((await run(runtime.claude, [], { ...someone, cwd: '/' })).stdout).toBe('staged\n')
  await run('/bin/cat', [join(runtime.etc, 'passwd')], { ...someone, cwd: '/' })
})

test('a claude that others may not run is copied, not linked', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'), 0o700)
  const runtime = await stageRuntime(join(dir, 'runtime'), source)
  expect(await modeOf(runtime.claude)).toBe(0o555)
  expect(await modeOf(source.claude)).toBe(0o700)
})

test('a strict umask takes nothing away from a staged runtime', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  const before = process.umask(0o077)
  try {
    await mkdir(join(dir, 'runtime'))
    const runtime = await stageRuntime(join(dir, 'runtime'), source)
    expect(await modeOf(runtime.dir)).toBe(0o755)
    expect(await modeOf(runtime.etc)).toBe(0o755)
    expect(await modeOf(join(runtime.etc, 'passwd'))).toBe(0o444)
    expect(await modeOf(runtime.node)).toBe(0o111)
  } finally {
    process.umask(before)
  }
})

test('a failed staging leaves no folder behind', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  const folder = join(dir, 'not-a-file')
  await mkdir(folder)
  await expect(stageRuntime(join(dir, 'runtime'), { ...source, node: folder })).rejects.toThrow()
  expect(await readdir(join(dir, 'runtime'))).toEqual([])
})

test('a missing source fails before anything is made', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  await expect(stageRuntime(join(dir, 'runtime'), { ...source, claude: join(dir, 'none') })).rejects.toThrow(
    /ENOENT/,
  )
  expect(await readdir(dir)).toEqual(['source'])
})

test('what sandbox users cannot reach is refused by the name of the folder in the way', async () => {
  const dir = await tempDir()
  const blocking = join(dir, 'closed')
  const target = join(blocking, 'open', 'data')
  await mkdir(target, { recursive: true })
  await chmod(blocking, 0o700)
  const error = await assertReachable(target).catch((thrown: unknown) => thrown)
  expect(isAshError(error, 'provider_unavailable')).toBe(true)
  expect((error as Error).message).toContain(`${blocking} has mode 0700`)
  expect((error as Error).message).toContain(`chmod o+x ${blocking}`)
  await chmod(blocking, 0o711)
  await assertReachable(target)
})

test('a link does not hide the closed folder that its target lies in', async () => {
  const dir = await tempDir()
  await mkdir(join(dir, 'closed', 'data'), { recursive: true })
  await chmod(join(dir, 'closed'), 0o700)
  await symlink(join(dir, 'closed', 'data'), join(dir, 'link'))
  await expect(assertReachable(join(dir, 'link'))).rejects.toThrow(`chmod o+x ${join(dir, 'closed')}`)
})

test('what an earlier version staged, or left half staged, is removed on request', async () => {
  const dir = await tempDir()
  const source = await makeSource(join(dir, 'source'))
  await stageRuntime(join(dir, 'runtime'), source)
  await writeFile(source.bridge, 'export const next = true\n')
  const runtime = await stageRuntime(join(dir, 'runtime'), source)
  await mkdir(join(dir, 'runtime', '.staging-left'))
  await removeOtherRuntimes(runtime)
  expect(await readdir(join(dir, 'runtime'))).toEqual([runtime.dir.split('/').at(-1)])
})
