import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { deployTestAgent, scripted, startEndlessTurn } from './support/conversation.ts'
import { runProcess } from './support/run-process.ts'
import { type TarEntry, tar } from './support/tar.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let folder: string
let id: string
beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
})
afterAll(() => server.close())
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ash-archive-'))
  id = (await server.client.sessions.create({ agent: 'zebra' })).id
})
afterEach(async () => {
  await server.client.sessions.end(id)
  await rm(folder, { recursive: true })
})

const run = async (command: string, session = id) => {
  const { stdout, stderr, exitCode } = await server.client.sessions.exec(session, { command })
  expect([exitCode, stderr]).toEqual([0, ''])
  return stdout
}
const list = async (session = id) =>
  (await server.client.files.list(session)).files.map(({ path }) => path).sort()
const upload = (archive: Uint8Array, replace = false, session = id) =>
  server.client.workspace.upload(session, new Uint8Array(archive), { replace })

async function download(options = {}): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(await server.client.workspace.download(id, options)))
}

/** What `tar` makes of an archive. */
async function unpack(archive: Buffer): Promise<string> {
  const target = await mkdtemp(join(folder, 'unpacked-'))
  await writeFile(join(folder, 'archive.tar.gz'), archive)
  const args = ['-xpzf', join(folder, 'archive.tar.gz'), '-C', target]
  expect(await runProcess('tar', args)).toEqual({ code: 0, stdout: '', stderr: '' })
  return target
}

/** Type, mode, time, name and target of everything, the number of links of each file, and all contents. */
const DESCRIBE = `
export LC_ALL=C
find . -mindepth 1 -exec stat -c '%F %a %Y %N' {} + | sort
find . -type f -exec stat -c '%h %s %N' {} + | sort
find . -type f -print0 | sort -z | xargs -0 sha256sum`

const describeFolder = async (path: string) =>
  (await runProcess('sh', ['-c', `cd "${path}" && ${DESCRIBE}`])).stdout

/** What tends to get lost in archives. */
const MAKE_FILES = `
mkdir -p "deep/$(printf 'long-%.0s' $(seq 30))/$(printf 'name-%.0s' $(seq 30))" empty "grüße 🦓" closed
echo text > "grüße 🦓/zebra 斑马.txt"
printf 'e\\314\\201' > "$(printf 'decomposed-e\\314\\201')"
printf x > "$(printf 'latin-\\351')"
printf y > "$(printf 'line\\nbreak')"
echo deep > "deep/$(printf 'long-%.0s' $(seq 30))/$(printf 'name-%.0s' $(seq 30))/file"
printf '#!/bin/sh\\necho ran\\n' > script; chmod 755 script
echo secret > private; chmod 600 private
echo nobody > closed/file; chmod 400 closed/file; chmod 500 closed
ln -s script link; ln -s /etc/passwd outside; ln -s nowhere dangling; ln private second
truncate -s 5M sparse; printf end >> sparse; touch empty-file
head -c 3000000 /dev/urandom > random
touch -d '2001-02-03 04:05:06' random; touch -hd '2002-02-02 02:02:02' link; touch -d '2003-03-03' empty`

describe('a workspace', () => {
  test('is downloaded as an archive that tar unpacks to the same files', async () => {
    await run(MAKE_FILES)
    const inside = await run(DESCRIBE)
    expect(inside).toContain("'./link' -> 'script'")
    expect(await describeFolder(await unpack(await download()))).toBe(inside)
  })

  test('goes into another session as it was', async () => {
    await run(MAKE_FILES)
    const inside = await run(DESCRIBE)
    const archive = await download()
    const other = (await server.client.sessions.create({ agent: 'zebra' })).id
    const { session, checkpoint } = await upload(archive, true, other)
    expect(session).toMatchObject({ id: other, status: 'paused', checkpointId: checkpoint.id })
    expect(checkpoint).toMatchObject({ reason: 'upload', isCurrent: true })
    expect(await run(DESCRIBE, other)).toBe(inside)
    expect(await run('./link && echo more >> private && cat second', other)).toBe('ran\nsecret\nmore\n')
    await server.client.sessions.end(other)
  })

  test('can be had as it was at a checkpoint', async () => {
    await run('echo 1 > file')
    const { id: checkpointId } = await server.client.checkpoints.create(id)
    await run('echo 2 > file; touch new')
    const before = await unpack(await download({ checkpointId }))
    expect((await readdir(before)).sort()).toEqual(['CLAUDE.md', 'file'])
    expect((await readdir(await unpack(await download()))).sort()).toEqual(['CLAUDE.md', 'file', 'new'])
  })
})

describe('an archive', () => {
  const ARCHIVE = tar(
    { name: 'file', content: 'of the archive' },
    { name: 'folder/new', content: 'new' },
    { name: 'tool', content: '#!/bin/sh\necho ran', mode: 0o755 },
  )

  test('is laid over what is there', async () => {
    await run('echo old > file; mkdir folder; echo kept > folder/kept; mkdir tool; touch tool/gone')
    await upload(ARCHIVE)
    expect(await run('cat file folder/new folder/kept; ./tool; touch folder/writable')).toBe(
      'of the archivenewkept\nran\n',
    )
  })

  test('replaces what is there, and nothing outside of the workspace', async () => {
    await run('echo old > file; mkdir folder; echo gone > folder/gone; echo kept > ~/kept')
    await server.client.sessions.send(id, scripted({ text: 'the word is zebra' })).text()
    await upload(gzipSync(ARCHIVE), true)
    expect(await run('find . -type f | sort; cat ~/kept')).toBe('./file\n./folder/new\n./tool\nkept\n')
    const heard = await server.client.sessions.send(id, scripted({ text: 'heard: {{prompts}}' })).text()
    expect(heard).toContain('the word is zebra')
  })

  test('is refused during a turn, and taken when the session rests', async () => {
    const turn = await startEndlessTurn(server.client, id)
    await expect(upload(ARCHIVE)).rejects.toMatchObject({ code: 'turn_in_progress', statusCode: 409 })
    await server.client.sessions.interrupt(id)
    await turn.result().catch(() => {})
    await server.client.sessions.pause(id)
    await upload(ARCHIVE)
    expect(await run('cat file')).toBe('of the archive')
  })

  test('never reaches through a link: a folder takes its place', async () => {
    const target = await run('mkdir ~/target; ln -s ~/target old; printf %s ~/target')
    const link = { name: 'new', type: '2', linkTarget: target }
    await upload(tar(link, { name: 'new/file', content: 'new' }, { name: 'old/file', content: 'old' }))
    expect(await run('ls -A ~/target; stat -c "%F %n" new old; cat new/file old/file')).toBe(
      'directory new\ndirectory old\nnewold',
    )
  })

  test('can be undone', async () => {
    await run('echo old > file')
    await upload(ARCHIVE)
    const [, before] = (await server.client.checkpoints.list(id)).checkpoints
    await server.client.sessions.rollback(id, { checkpointId: before?.id ?? '' })
    expect(await run('cat file; ls')).toBe('old\nCLAUDE.md\nfile\n')
  })
})

describe('a hostile archive is refused as a whole', () => {
  const GB = 1024 ** 3
  const first: TarEntry = { name: 'first', content: 'harmless' }

  test.each<[string, TarEntry[], string?]>([
    ['an absolute path', [{ name: '/tmp/ash-escaped', content: 'x' }]],
    ['a path that goes up', [{ name: '../ash-escaped', content: 'x' }]],
    ['a path that goes up in its middle', [{ name: 'a/../../ash-escaped', content: 'x' }]],
    ['a hard link to a file of the host', [{ name: 'passwd', type: '1', linkTarget: '/etc/passwd' }]],
    ['a hard link that goes up', [{ name: 'up', type: '1', linkTarget: '../../host-id' }]],
    ['a character device', [{ name: 'device', type: '3' }]],
    ['a block device', [{ name: 'device', type: '4' }]],
    ['a pipe', [{ name: 'pipe', type: '6' }]],
    ['a file that is not all there', [{ name: 'short', content: 'x', size: 10_000 }]],
    ['a file of an absurd size', [{ name: 'huge', content: 'x', size: 7 * GB }], 'payload_too_large'],
  ])('%s', async (_, entries, code = 'archive_invalid') => {
    const before = await run('echo mine > file; ls -la --time-style=+')
    const { sandboxId } = await server.client.sessions.get(id)
    for (const replace of [false, true])
      await expect(upload(tar(first, ...entries), replace)).rejects.toMatchObject({ code })
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'active', sandboxId })
    expect(await run('ls -la --time-style=+')).toBe(before)
    expect(await list()).toEqual(['CLAUDE.md', 'file'])
    expect(await readdir(tmpdir())).not.toContain('ash-escaped')
    expect(
      (await readdir(server.dataDir, { recursive: true })).filter((path) => path.endsWith('ash-escaped')),
    ).toEqual([])
  })
})
