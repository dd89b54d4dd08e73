import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { readAgentFolder, toAgentName } from './agent-folder.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'ash-folder-'))
  write('CLAUDE.md', 'You help.')
})
afterEach(() => rmSync(dir, { recursive: true }))

function write(path: string, content: string): void {
  mkdirSync(join(dir, path, '..'), { recursive: true })
  writeFileSync(join(dir, path), content)
}

test('takes files at any depth, hidden ones too, with their executable bits', async () => {
  write('.claude/skills/x/SKILL.md', 'skill')
  write('bin/run.sh', '#!/bin/sh')
  chmodSync(join(dir, 'bin/run.sh'), 0o755)
  const { files, bytes } = await readAgentFolder(dir)
  expect(files).toEqual([
    { path: '.claude/skills/x/SKILL.md', content: Buffer.from('skill').toString('base64') },
    { path: 'CLAUDE.md', content: Buffer.from('You help.').toString('base64') },
    { path: 'bin/run.sh', content: Buffer.from('#!/bin/sh').toString('base64'), executable: true },
  ])
  expect(bytes).toBe(23)
})

test('leaves out what is not the agent', async () => {
  for (const path of ['.git/config', 'node_modules/a/index.js', 'sub/node_modules/b.js', 'sub/.DS_Store']) {
    write(path, 'x')
  }
  expect((await readAgentFolder(dir)).files.map(({ path }) => path)).toEqual(['CLAUDE.md'])
})

test('follows no link, to files or folders, and opens no socket', async () => {
  symlinkSync('/etc/passwd', join(dir, 'passwd'))
  symlinkSync('/etc', join(dir, 'etc'))
  const socket = createServer()
  await new Promise<void>((resolve) => socket.listen(join(dir, 'socket'), resolve))
  const { files, skipped } = await readAgentFolder(dir)
  socket.close()
  expect(files.map(({ path }) => path)).toEqual(['CLAUDE.md'])
  expect(skipped).toEqual(['etc: a link', 'passwd: a link', 'socket: not a file'])
})

test('a linked CLAUDE.md is none', async () => {
  rmSync(join(dir, 'CLAUDE.md'))
  symlinkSync('/etc/passwd', join(dir, 'CLAUDE.md'))
  await expect(readAgentFolder(dir)).rejects.toThrow('has no CLAUDE.md')
})

test('reads .env and .env.local but uploads neither, nor those further down', async () => {
  write('.env', 'A=1\nB="two words" # why\n')
  write('.env.local', 'A=local\n')
  write('sub/.env', 'C=3')
  const { env, files, skipped } = await readAgentFolder(dir)
  expect(env).toEqual({ A: 'local', B: 'two words' })
  expect(files.map(({ path }) => path)).toEqual(['CLAUDE.md'])
  expect(skipped).toHaveLength(3)
})

test('refuses a folder too large to upload before reading it all', async () => {
  write('big.bin', '')
  truncateSync(join(dir, 'big.bin'), 2 ** 31)
  await expect(readAgentFolder(dir)).rejects.toThrow('more than 37 MB')
})

test.each([
  ['hosted-agent', 'hosted-agent'],
  ['My Agent! (v2)', 'My-Agent-v2'],
  ['..', ''],
  ['_x', 'x'],
  ['日本', ''],
  ['a'.repeat(200), 'a'.repeat(128)],
])('the folder %j makes the agent %j', (folder, name) => {
  expect(toAgentName(folder)).toBe(name)
})
