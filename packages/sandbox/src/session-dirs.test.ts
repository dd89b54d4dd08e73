import { execFile } from 'node:child_process'
import { chmod, lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { createSessionDirs, removeSessionDirs, sessionDirs } from './session-dirs.ts'
import { tempDir } from './testing/temp-dir.ts'

const run = promisify(execFile)
const OWNER =
  process.getuid?.() === 0
    ? { uid: 300_001, gid: 300_002 }
    : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

async function makeAgent(dir: string): Promise<string> {
  const agent = join(dir, 'agent')
  await mkdir(join(agent, '.claude', 'skills'), { recursive: true })
  await writeFile(join(agent, 'CLAUDE.md'), 'You are a test.\n')
  await writeFile(join(agent, '.claude', 'skills', 'run.sh'), '#!/bin/sh\n', { mode: 0o755 })
  await chmod(join(agent, '.claude', 'skills', 'run.sh'), 0o755)
  await symlink('/etc/passwd', join(agent, 'link'))
  await run('mkfifo', [join(agent, 'pipe')])
  return agent
}

const modeOf = async (path: string) => (await stat(path)).mode & 0o777
const ownerOf = async (path: string) => {
  const { uid, gid } = await lstat(path)
  return { uid, gid }
}

test('a workspace is a copy of the folders and files of the agent, and of nothing else', async () => {
  const dir = await tempDir()
  const dirs = sessionDirs(dir, 'session-1')
  await createSessionDirs(dirs, await makeAgent(dir), OWNER)
  expect((await readdir(dirs.workspace)).sort()).toEqual(['.claude', 'CLAUDE.md'])
  expect(await readFile(join(dirs.workspace, 'CLAUDE.md'), 'utf8')).toBe('You are a test.\n')
  expect(await modeOf(join(dirs.workspace, '.claude', 'skills', 'run.sh'))).toBe(0o755)
  expect(await readdir(dirs.home)).toEqual([])
  expect((await readdir(dirs.disk)).sort()).toEqual(['home', 'workspace'])
})

test('workspace and home are private to the owner, who can pass through the folder above', async () => {
  const dir = await tempDir()
  const dirs = sessionDirs(dir, 'session-1')
  const before = process.umask(0o077)
  try {
    await createSessionDirs(dirs, await makeAgent(dir), OWNER)
  } finally {
    process.umask(before)
  }
  expect(await modeOf(dirs.root)).toBe(0o711)
  expect(await modeOf(dirs.workspace)).toBe(0o700)
  expect(await modeOf(dirs.home)).toBe(0o700)
  const all = ['.', 'CLAUDE.md', '.claude', '.claude/skills', '.claude/skills/run.sh']
  for (const path of [dirs.home, ...all.map((name) => join(dirs.workspace, name))]) {
    expect(await ownerOf(path), path).toEqual(OWNER)
  }
  expect((await ownerOf(dirs.root)).uid).toBe(process.getuid?.())
})

test('folders that exist keep what the session wrote', async () => {
  const dir = await tempDir()
  const dirs = sessionDirs(dir, 'session-1')
  const agent = await makeAgent(dir)
  await createSessionDirs(dirs, agent, OWNER)
  await writeFile(join(dirs.workspace, 'result.txt'), 'done')
  await writeFile(join(agent, 'CLAUDE.md'), 'changed')
  await createSessionDirs(dirs, agent, OWNER)
  expect(await readFile(join(dirs.workspace, 'result.txt'), 'utf8')).toBe('done')
  expect(await readFile(join(dirs.workspace, 'CLAUDE.md'), 'utf8')).toBe('You are a test.\n')
})

test('a half-made workspace is begun anew', async () => {
  const dir = await tempDir()
  const dirs = sessionDirs(dir, 'session-1')
  // What a server that was killed in the middle of the copy leaves.
  await mkdir(join(dirs.root, '.workspace'), { recursive: true })
  await writeFile(join(dirs.root, '.workspace', 'stale'), 'half')
  await createSessionDirs(dirs, await makeAgent(dir), OWNER)
  expect((await readdir(dirs.workspace)).sort()).toEqual(['.claude', 'CLAUDE.md'])
  expect((await readdir(dirs.disk)).sort()).toEqual(['home', 'workspace'])
})

test('a missing agent makes no workspace and leaves no half of one', async () => {
  const dir = await tempDir()
  const dirs = sessionDirs(dir, 'session-1')
  await expect(createSessionDirs(dirs, join(dir, 'none'), OWNER)).rejects.toThrow(/ENOENT/)
  expect(await readdir(dirs.disk)).toEqual(['home'])
})

test('removing a session’s folders removes what their owner locked, and is safe to repeat', async () => {
  const dir = await tempDir()
  const dirs = sessionDirs(dir, 'session-1')
  await createSessionDirs(dirs, await makeAgent(dir), OWNER)
  await symlink(dir, join(dirs.workspace, 'out'))
  await removeSessionDirs(dirs)
  await removeSessionDirs(dirs)
  expect((await readdir(dir)).sort()).toEqual(['agent', 'sandboxes'])
  expect(await readdir(join(dir, 'sandboxes'))).toEqual([])
})

test('a tree deeper than any path can name is removed too', async () => {
  const dir = await tempDir()
  const dirs = sessionDirs(dir, 'session-1')
  await createSessionDirs(dirs, await makeAgent(dir), undefined)
  const dig = `my $d = "d" x 200; for (1..60) { mkdir $d or die; chdir $d or die }`
  await run('perl', ['-e', dig], { cwd: dirs.workspace })
  await removeSessionDirs(dirs)
  expect(await readdir(join(dir, 'sandboxes'))).toEqual([])
})

test('without an agent both folders begin empty, and belong to the session', async () => {
  const dirs = sessionDirs(await tempDir(), 'session-1')
  await createSessionDirs(dirs, undefined, OWNER)
  expect((await readdir(dirs.disk)).sort()).toEqual(['home', 'workspace'])
  for (const folder of [dirs.workspace, dirs.home]) {
    expect(await readdir(folder)).toEqual([])
    expect(await modeOf(folder)).toBe(0o700)
    expect(await ownerOf(folder)).toEqual(OWNER)
  }
  await writeFile(join(dirs.workspace, 'kept'), '')
  await createSessionDirs(dirs, undefined, OWNER)
  expect(await readdir(dirs.workspace)).toEqual(['kept'])
})
