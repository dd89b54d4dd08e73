import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FileEvent } from '@ash-ai/sdk'
import { isAshError } from '@ash-ai/shared'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { deployTestAgent } from './support/conversation.ts'
import { rawRequest } from './support/raw-http.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let outside: string
let id: string
beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
  outside = await mkdtemp(join(tmpdir(), 'ash-outside-'))
  await writeFile(join(outside, 'secret.txt'), 'outside')
})
afterAll(async () => {
  await server.close()
  await rm(outside, { recursive: true })
})
beforeEach(async () => {
  id = (await server.client.sessions.create({ agent: 'zebra' })).id
})
afterEach(() => server.client.sessions.end(id))

const files = () => server.client.files
const run = async (command: string) => {
  const { stdout, stderr, exitCode } = await server.client.sessions.exec(id, { command })
  expect([exitCode, stderr]).toEqual([0, ''])
  return stdout
}
const status = async () => (await server.client.sessions.get(id)).status
const isCode = (code: Parameters<typeof isAshError>[1]) => (error: unknown) => isAshError(error, code)

describe.each(['live', 'paused'])('the files of a %s session', (state) => {
  beforeEach(async () => {
    await run('mkdir -p src/deep; echo one > src/a.py; echo two > src/deep/b.py; chmod 640 src/a.py')
    if (state === 'paused') await server.client.sessions.pause(id)
  })
  /** Nothing that is done to the files of a paused session wakes it. */
  afterEach(async () => expect(await status()).toBe(state === 'paused' ? 'paused' : 'active'))

  test('are listed in pages, found by name and described', async () => {
    const page = await files().list(id, { path: 'src', limit: 2 })
    expect(page.files.map(({ path }) => path)).toEqual(['src/a.py', 'src/deep'])
    expect(page).toMatchObject({ truncated: true, source: 'live', nextCursor: expect.any(String) })
    const all = await Array.fromAsync(files().listAll(id, { path: 'src', limit: 1 }))
    expect(all.map(({ path }) => path)).toEqual(['src/a.py', 'src/deep', 'src/deep/b.py'])
    const top = await files().list(id, { recursive: false })
    expect(top.files.map(({ path }) => path)).toEqual(['CLAUDE.md', 'src'])
    expect((await files().search(id, '*.py')).files.map(({ path }) => path)).toEqual([
      'src/a.py',
      'src/deep/b.py',
    ])
    expect(await files().stat(id, 'src/a.py')).toMatchObject({ type: 'file', size: 4, mode: '0640' })
  })

  test('are read in parts, and written under conditions', async () => {
    const part = await Array.fromAsync(await files().readStream(id, 'src/a.py', { start: 1, end: 2 }))
    expect(Buffer.concat(part).toString()).toBe('ne')
    const { etag } = await files().stat(id, 'src/a.py')
    await files().write(id, 'src/a.py', 'new', { ifMatch: etag })
    await expect(files().write(id, 'src/a.py', 'x', { ifMatch: etag })).rejects.toSatisfy(
      isCode('precondition_failed'),
    )
    await expect(files().write(id, 'src/a.py', 'x', { onlyNew: true })).rejects.toSatisfy(
      isCode('precondition_failed'),
    )
    expect(await files().readText(id, 'src/a.py')).toBe('new')
  })

  test('are made, moved, copied, uploaded, changed and deleted', async () => {
    await files().mkdir(id, 'a/b', { parents: true })
    await files().move(id, { from: 'src/a.py', to: 'a/b/c.py' })
    await files().copy(id, { from: 'src', to: 'copy' })
    await files().chmod(id, 'a/b/c.py', '755')
    const uploaded = await files().upload(
      id,
      [
        { name: 'one "x".txt', content: 'one' },
        { name: 'two.bin', content: new Uint8Array(100_000) },
      ],
      { path: 'in' },
    )
    expect(uploaded.map(({ path, size }) => [path, size])).toEqual([
      ['in/one %22x%22.txt', 3],
      ['in/two.bin', 100_000],
    ])
    await files().delete(id, 'src', { recursive: true })
    await expect(files().delete(id, 'a', { recursive: false })).rejects.toSatisfy(isCode('file_exists'))
    const paths = (await files().list(id)).files.map(({ path }) => path)
    expect(paths).toEqual([
      'CLAUDE.md',
      'a',
      'a/b',
      'a/b/c.py',
      'copy',
      'copy/deep',
      'copy/deep/b.py',
      'in',
      'in/one %22x%22.txt',
      'in/two.bin',
    ])
  })

  test('are watched', async () => {
    const watching = new AbortController()
    const seen: FileEvent[] = []
    for await (const event of files().watch(id, { path: 'src', signal: watching.signal })) {
      seen.push(event)
      if (event.type === 'ready') await files().write(id, 'src/new.txt', 'text')
      else break
    }
    expect(seen).toMatchObject([
      { type: 'ready', entries: 3, truncated: false },
      { type: 'created', path: 'src/new.txt', size: 4 },
    ])
  })

  test('are reached by links that need no key, and only for what they were made for', async () => {
    const get = await files().link(id, { path: 'src/a.py', expiresIn: 60 })
    expect(get.url.startsWith(`${server.url}/files/signed/`)).toBe(true)
    expect(await (await fetch(get.url)).text()).toBe('one\n')
    expect((await fetch(get.url, { method: 'PUT', body: 'evil' })).status).toBe(403)
    const put = await files().link(id, { path: 'in/new.txt', expiresIn: 60, method: 'PUT' })
    expect((await fetch(put.url, { method: 'PUT', body: 'text' })).status).toBe(200)
    expect((await fetch(put.url)).status).toBe(403)
    expect(await files().readText(id, 'in/new.txt')).toBe('text')
    const [path = ''] = new URL(get.url).pathname.split('.')
    expect((await fetch(`${server.url}${path}.${'A'.repeat(43)}`)).status).toBe(403)
    expect(server.log()).not.toContain(path.split('/').at(-1))
  })
})

describe('what the sandbox sees of it', () => {
  test('files that belong to it, with the modes that were asked for, after a pause as well', async () => {
    await files().write(id, 'bin/run.sh', '#!/bin/sh\necho ran\n', { mode: '0755' })
    await server.client.sessions.pause(id)
    await files().mkdir(id, 'made/here', { parents: true })
    await files().copy(id, { from: 'bin/run.sh', to: 'made/run.sh' })
    await server.client.sessions.resume(id)
    expect(
      await run('./bin/run.sh && ./made/run.sh && echo x > made/here/own && rm -r bin made && id -u'),
    ).toMatch(/^ran\nran\n\d+\n$/)
  })

  test('its own writes are told to a watch as it makes them', async () => {
    const watch = files().watch(id)
    expect((await watch.next()).value).toMatchObject({ type: 'ready' })
    await run('echo hello > made-inside')
    expect((await watch.next()).value).toEqual({ type: 'created', path: 'made-inside', size: 6 })
    await run('rm made-inside')
    expect((await watch.next()).value).toEqual({ type: 'deleted', path: 'made-inside', size: 6 })
    await watch.return(undefined)
  })

  test('links and pipes of its own lead nowhere, whatever is asked', async () => {
    await run(
      `ln -s ${outside} away; ln -s /proc/self/environ env; mkfifo pipe; ln -s ../../.. up; ln CLAUDE.md hard`,
    )
    for (const path of ['away/secret.txt', 'up/etc/passwd', 'away/new']) {
      const operations = [
        () => files().stat(id, path),
        () => files().read(id, path),
        () => files().write(id, path, 'evil'),
        () => files().mkdir(id, `${path}/x`, { parents: true }),
        () => files().move(id, { from: 'CLAUDE.md', to: path }),
        () => files().copy(id, { from: path, to: 'stolen' }),
        () => files().chmod(id, path, '777'),
        () => files().upload(id, [{ name: 'x', content: 'evil' }], { path }),
      ]
      for (const work of operations) await expect(work()).rejects.toSatisfy(isCode('path_invalid'))
    }
    expect(await files().stat(id, 'env')).toMatchObject({ type: 'link', linkTarget: '/proc/self/environ' })
    await expect(files().read(id, 'env')).rejects.toSatisfy(isCode('path_invalid'))
    await expect(files().read(id, 'pipe')).rejects.toSatisfy(isCode('not_a_file'))
    await expect(files().chmod(id, 'pipe', '777')).rejects.toSatisfy(isCode('path_invalid'))
    expect((await files().stat(id, 'hard')).type).toBe('file')
    expect((await files().search(id, 'secret')).files).toEqual([])
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('outside')
  })
})

test('a session that runs code has the same files, live and paused', async () => {
  const { id: codeId } = await server.client.sessions.create({ template: 'shell' })
  await files().write(codeId, 'in/data.txt', 'text')
  expect((await server.client.sessions.exec(codeId, { command: 'cat in/data.txt' })).stdout).toBe('text')
  await server.client.sessions.pause(codeId)
  await files().move(codeId, { from: 'in/data.txt', to: 'moved.txt' })
  expect((await files().search(codeId, 'moved')).files.map(({ path }) => path)).toEqual(['moved.txt'])
  expect((await server.client.sessions.get(codeId)).status).toBe('paused')
  await server.client.sessions.end(codeId)
})

test('a checkpoint is listed in pages and read in parts', async () => {
  await files().write(id, 'a/f.txt', '0123456789')
  const { id: checkpointId } = await server.client.checkpoints.create(id)
  await files().delete(id, 'a')
  const all = await Array.fromAsync(files().listAll(id, { checkpointId, limit: 1 }))
  expect(all.map(({ path }) => path)).toEqual(['CLAUDE.md', 'a', 'a/f.txt'])
  const part = await Array.fromAsync(await files().readStream(id, 'a/f.txt', { checkpointId, start: 7 }))
  expect(Buffer.concat(part).toString()).toBe('789')
  expect(await files().stat(id, 'a/f.txt', { checkpointId })).toMatchObject({ type: 'file', size: 10 })
})

test('a request without a key gets nowhere but to a signed link', async () => {
  for (const [method, path] of [
    ['GET', '?watch=true'],
    ['GET', '/CLAUDE.md?stat'],
    ['POST', '/upload'],
    ['POST', '/links'],
    ['POST', '/move'],
  ] as const) {
    const reply = await rawRequest(server.url, { method, path: `/api/sessions/${id}/files${path}` })
    expect(reply.status).toBe(401)
  }
  for (const path of [
    '/files/signed/',
    '/files/signed/x',
    '/files/signed/../../api/sessions',
    '/files/signed/x/y',
  ])
    expect([401, 403]).toContain((await rawRequest(server.url, { path })).status)
})
