import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { syscallNumber } from '@ash-ai/sandbox/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { deployTestAgent } from '../../integration/support/conversation.ts'
import { rawRequest } from '../../integration/support/raw-http.ts'
import { startTestServer, type TestServer } from '../../integration/support/test-server.ts'
import { perl } from '../support/host-victim.ts'
import { SERVER_KINDS } from '../support/server-kinds.ts'

// Links planted from inside a real sandbox while the file API is asked over HTTP. Everybody may read and overwrite what
// lies outside: whatever a server could be led to, it could do, also one that is not root.

const SECRET = 'the secret of the host'
let outside: string

beforeAll(async () => {
  outside = await mkdtemp(join(tmpdir(), 'ash-outside-'))
  await chmod(outside, 0o777)
  await mkdir(join(outside, 'sub'))
  await chmod(join(outside, 'sub'), 0o777)
  for (const name of ['file.txt', 'sub/file.txt']) {
    await writeFile(join(outside, name), SECRET)
    await chmod(join(outside, name), 0o666)
  }
})
afterAll(() => rm(outside, { recursive: true, force: true }))

const outsideIsIntact = async () => {
  expect((await readdir(outside, { recursive: true })).sort()).toEqual(['file.txt', 'sub', 'sub/file.txt'])
  for (const name of ['file.txt', 'sub/file.txt'])
    expect(await readFile(join(outside, name), 'utf8')).toBe(SECRET)
}

/** Swaps a folder of the workspace with something else as fast as it can, for two seconds. */
const swapping = (how: string) =>
  perl(`mkdir 'folder'; open my $f, '>', 'folder/file.txt'; print $f 'inside'; close $f;
  symlink '${outside}', 'link'; my $end = time + 2;
  while (time < $end) { ${how} }`)

describe.each(SERVER_KINDS)('through the file API of a server run by $name,', (kind) => {
  let server: TestServer
  let id: string
  beforeAll(async () => {
    const user = kind.user()
    server = await startTestServer(user ? { user, env: { ASH_RUNTIME_DIR: '' } } : {})
    await deployTestAgent(server.client)
    id = (await server.client.sessions.create({ agent: 'zebra' })).id
  })
  afterAll(() => server?.close())

  const exec = (command: string) => server.client.sessions.exec(id, { command })
  /** A file that shrinks while it is sent can only be broken off, which counts as no reply. */
  const call = (method: string, path: string, body?: string) =>
    rawRequest(server.url, {
      method,
      path: `/api/sessions/${id}/files${path}`,
      headers: {
        authorization: `Bearer ${server.apiKey}`,
        ...(body !== undefined && { 'content-type': 'application/octet-stream' }),
      },
      ...(body !== undefined && { body }),
    }).catch(() => ({ status: 0, text: '' }))
  test.each([
    [
      'a folder that turns into a link',
      `rename 'folder', 'aside'; rename 'link', 'folder'; rename 'folder', 'link'; rename 'aside', 'folder'`,
    ],
    [
      'a folder exchanged for a link at once',
      `syscall(${syscallNumber('renameat2')}, -100, my $a = 'folder', -100, my $b = 'link', 2)`,
    ],
    [
      'a file that turns into a link',
      `unlink 'folder/file.txt'; symlink '${outside}/file.txt', 'folder/file.txt'; unlink 'folder/file.txt'; open my $g, '>', 'folder/file.txt'; print $g 'inside'; close $g`,
    ],
  ])('%s leads to nothing outside', async (_, how) => {
    await exec('rm -rf folder link aside')
    let isOver = false
    const racing = exec(swapping(how)).finally(() => {
      isOver = true
    })
    const seen = new Set<number | undefined>()
    while (!isOver) {
      const replies = await Promise.all([
        call('GET', '/folder/file.txt'),
        call('GET', '/folder/sub/file.txt'),
        call('GET', '?path=folder'),
        call('PUT', '/folder/file.txt', 'overwritten'),
        call('PUT', '/folder/planted.txt', 'planted'),
        call('DELETE', '/folder/sub/file.txt'),
      ])
      for (const { status, text } of replies) {
        seen.add(status)
        expect(text).not.toContain(SECRET)
      }
    }
    expect((await racing).exitCode).toBe(0)
    expect(seen).toContain(200) // The race was run against an API that answers.
    await outsideIsIntact()
  })

  test.each([
    ['a link to a host file', 'ln -sfn OUTSIDE/file.txt trap'],
    ['a chain of links', 'ln -sfn OUTSIDE hop; ln -sfn hop/file.txt trap'],
    ['a link to the server’s environment', 'ln -sfn /proc/self/environ trap'],
    ['a link to the server’s memory', 'ln -sfn /proc/self/mem trap'],
    ['a link to an endless device', 'ln -sfn /dev/zero trap'],
    ['a pipe that nobody writes to', 'mkfifo trap'],
    ['a socket', `perl -e 'use Socket; socket S, AF_UNIX, SOCK_STREAM, 0; bind S, pack_sockaddr_un("trap")'`],
    [
      'a file that its owner closed',
      'echo closed > trap; chmod 000 trap; ln -sfn OUTSIDE/file.txt trap2; mv -f trap2 trap',
    ],
  ])('%s is neither read nor written', async (_, plant) => {
    await exec(`rm -rf trap; ${plant.replaceAll('OUTSIDE', outside)}`)
    const started = performance.now()
    const read = await call('GET', '/trap')
    expect(read.status).toBeGreaterThanOrEqual(400)
    expect(read.text).not.toMatch(/the secret of the host|ANTHROPIC_API_KEY/)
    await call('PUT', '/trap', 'overwritten')
    await call('DELETE', '/trap')
    expect(performance.now() - started).toBeLessThan(5_000)
    await outsideIsIntact()
  })

  test('a sparse giant is not read into memory', async () => {
    await exec('truncate -s 900M giant')
    const rss = async () =>
      Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${server.pid()}/status`, 'utf8'))?.[1])
    const before = await rss()
    expect((await call('GET', '/giant?format=json')).status).toBeGreaterThanOrEqual(400)
    expect((await rss()) - before).toBeLessThan(200 * 1024)
    await exec('rm giant')
  })
})
