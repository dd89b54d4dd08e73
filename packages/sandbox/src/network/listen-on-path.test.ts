import { once } from 'node:events'
import { mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { listenOnPath } from './listen-on-path.ts'

function echoServer() {
  const server = createServer((socket) => socket.end('hello'))
  onTestFinished(() => {
    server.close()
  })
  return server
}

/** Connects by a short name: a client's address is as limited as a server's. */
async function readFrom(dir: string, name: string): Promise<string> {
  const before = process.cwd()
  process.chdir(dir)
  const socket = connect(name)
  process.chdir(before)
  const [chunk] = (await once(socket, 'data')) as [Buffer]
  return chunk.toString()
}

test.each([
  ['a short path', 'run'],
  ['a path longer than a socket address', `${'x'.repeat(100)}/${'y'.repeat(100)}`],
])('a socket at %s is reachable, private and removed in the end', async (_, below) => {
  const dir = join(await tempDir(), below)
  await mkdir(dir, { recursive: true })
  const path = join(dir, 'model.sock')
  const server = echoServer()
  const release = await listenOnPath(server, path)
  expect((await stat(path)).isSocket()).toBe(true)
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect(await readFrom(dir, 'model.sock')).toBe('hello')
  await new Promise((resolve) => server.close(resolve))
  await release()
  expect(await readdir(dir)).toEqual([])
})

test('a socket belongs to the user it is for', async () => {
  const owner =
    process.getuid?.() === 0
      ? { uid: 300_001, gid: 300_002 }
      : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  const path = join(await tempDir(), 'model.sock')
  await listenOnPath(echoServer(), path, owner)
  expect(await stat(path)).toMatchObject(owner)
})

test('a socket that a killed server left behind is replaced', async () => {
  const dir = await tempDir()
  await writeFile(join(dir, 'model.sock'), '')
  await listenOnPath(echoServer(), join(dir, 'model.sock'))
  expect(await readFrom(dir, 'model.sock')).toBe('hello')
})

test('a folder that does not exist is an error, however long its name', async () => {
  const dir = await tempDir()
  await expect(listenOnPath(echoServer(), join(dir, 'none', 'model.sock'))).rejects.toThrow()
  await expect(listenOnPath(echoServer(), join(dir, 'n'.repeat(120), 'model.sock'))).rejects.toThrow()
})
