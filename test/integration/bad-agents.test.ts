import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { MAX_AGENT_BYTES } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { base64, deployTestAgent } from './support/conversation.ts'
import type { RawRequest } from './support/raw-http.ts'
import {
  expectNothingChanges,
  expectRefused,
  invalid,
  listEverything,
  post,
  type Refusal,
  request,
} from './support/refusals.ts'
import { paxEntry, type TarEntry, tar, tarEntry } from './support/tar.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const LONG = 'x'.repeat(300)
const claudeMd = { path: 'CLAUDE.md', content: base64('# Hi') }
const CLAUDE: TarEntry = { name: 'CLAUDE.md', content: '# Hi' }

let server: TestServer
let sessionId: string
beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
  sessionId = (await server.client.sessions.create({ agent: 'zebra' })).id
})
afterAll(() => server.close())
expectNothingChanges(() => [server, sessionId])

const refuses = (raw: RawRequest, refusal: Refusal) => expectRefused(server, raw, refusal)

describe('an agent name', () => {
  const badNames = [
    '../x',
    '..',
    '',
    LONG,
    'é',
    'ａｇｅｎｔ',
    'a b',
    'a/b',
    '.hidden',
    '-x',
    'a\0',
    "x'--",
    'a\n',
  ]

  test.each(badNames)('%j is refused wherever one is given', async (name) => {
    await refuses(post('/api/agents', { name, files: [claudeMd] }), invalid('name'))
    await refuses(post('/api/sessions', { agent: name }), invalid('agent'))
    const inUrl = encodeURIComponent(name)
    const headers = { 'content-type': 'application/x-tar' }
    const archive = { method: 'POST', path: `/api/agents?name=${inUrl}`, headers, body: tar(CLAUDE) }
    await refuses(archive, invalid('name'))
    await refuses({ path: `/api/sessions?agent=${inUrl}` }, invalid('agent'))
    if (name === '') return
    for (const suffix of ['', '/versions', '/files'])
      await refuses({ path: `/api/agents/${inUrl}${suffix}` }, invalid('name'))
    await refuses({ method: 'DELETE', path: `/api/agents/${inUrl}` }, invalid('name'))
  })

  test('of no agent is not found, nor is a version that it does not have', async () => {
    const notFound = { status: 404, code: 'agent_not_found', names: 'nobody' } as const
    await refuses(post('/api/sessions', { agent: 'nobody' }), notFound)
    for (const suffix of ['', '/versions', '/files'])
      await refuses({ path: `/api/agents/nobody${suffix}` }, notFound)
    await refuses({ method: 'DELETE', path: '/api/agents/nobody' }, notFound)
    await refuses(post('/api/sessions', { agent: 'zebra', agentVersion: 2 }), {
      ...notFound,
      names: 'version 2',
    })
  })

  test('of an agent in use cannot be deleted', async () => {
    await refuses(
      { method: 'DELETE', path: '/api/agents/zebra' },
      { status: 409, code: 'agent_in_use', names: sessionId },
    )
  })
})

describe('an archive', () => {
  const deploy = (body: Uint8Array): RawRequest => ({
    method: 'POST',
    path: '/api/agents?name=archived',
    headers: { 'content-type': 'application/x-tar' },
    body,
  })
  const bad = (names?: string): Refusal => ({ status: 400, code: 'archive_invalid', names })
  const link = (type: string): TarEntry => ({ name: 'odd', type, linkTarget: '/etc/passwd' })
  const gnuLongName = (name: string): TarEntry[] => [
    { name: '././@LongLink', type: 'L', content: `${name}\0` },
    { name: 'short' },
  ]

  test.each<[string, Uint8Array, Refusal]>([
    ['an absolute path', tar(CLAUDE, { name: '/tmp/evil' }), bad('/tmp/evil')],
    ['a path that leaves it', tar(CLAUDE, { name: '../evil' }), bad('../evil')],
    ['a path that leaves it half way', tar(CLAUDE, { name: 'a/../../evil' }), bad('a/../../evil')],
    ['a folder that leaves it', tar(CLAUDE, { name: '../evil/', type: '5' }), bad('../evil')],
    [
      'a path that leaves it in a pax header',
      tar(CLAUDE, paxEntry({ path: '../evil' }), { name: 'good' }),
      bad('../evil'),
    ],
    ['a path that leaves it as a long name', tar(CLAUDE, ...gnuLongName('../evil')), bad('../evil')],
    ['a backslash', tar(CLAUDE, { name: '..\\evil' }), bad('evil')],
    ['a name that is not UTF-8', tar(CLAUDE, { name: Buffer.from([0x66, 0xff]) }), bad()],
    ['a path beyond all length', tar(CLAUDE, ...gnuLongName('d/'.repeat(600))), bad()],
    ['a symbolic link', tar(CLAUDE, link('2')), bad('odd')],
    ['a hard link', tar(CLAUDE, link('1')), bad('odd')],
    [
      'a symbolic link under the name of the instructions',
      tar({ ...link('2'), name: 'CLAUDE.md' }),
      bad('CLAUDE.md'),
    ],
    ['a character device', tar(CLAUDE, link('3')), bad('odd')],
    ['a block device', tar(CLAUDE, link('4')), bad('odd')],
    ['a pipe', tar(CLAUDE, link('6')), bad('odd')],
    ['a sparse file of GNU tar', tar(CLAUDE, { name: 'odd', type: 'S' }), bad('odd')],
    [
      'a sparse file in pax form',
      tar(CLAUDE, paxEntry({ 'GNU.sparse.major': '1' }), { name: 'odd' }),
      bad('odd'),
    ],
    ['an unknown type', tar(CLAUDE, { name: 'odd', type: 'Z' }), bad('odd')],
    ['the same file twice', tar(CLAUDE, CLAUDE), { status: 400, code: 'agent_invalid', names: 'CLAUDE.md' }],
    [
      'a file where a folder is',
      tar(CLAUDE, { name: 'a/b' }, { name: 'a' }),
      { status: 400, code: 'agent_invalid', names: '"a"' },
    ],
    [
      'a folder where a file is',
      tar(CLAUDE, { name: 'a' }, { name: 'a/b' }),
      { status: 400, code: 'agent_invalid', names: 'a/b' },
    ],
    [
      'a file larger than an agent may be',
      tarEntry({ name: 'big', size: MAX_AGENT_BYTES + 1 }),
      { status: 413, code: 'payload_too_large', names: 'big' },
    ],
    [
      'a cut in the middle of a file',
      tar(CLAUDE, { name: 'cut', content: 'x'.repeat(2000) }).subarray(0, 2048),
      bad(),
    ],
    ['a cut in the middle of a header', tar(CLAUDE, CLAUDE).subarray(0, 1100), bad()],
    ['a cut before the end mark', tarEntry(CLAUDE), bad()],
    ['a wrong checksum', tar(CLAUDE).fill('y', 0, 5), bad()],
    ['a gzip cut off', gzipSync(tar(CLAUDE)).subarray(0, 40), bad()],
    ['bytes that are no archive', Buffer.from('hello, I am not a tar'.repeat(100)), bad()],
    ['nothing', Buffer.alloc(0), bad()],
    ['nothing but an end', tar(), { status: 400, code: 'agent_invalid', names: 'CLAUDE.md' }],
    [
      'no CLAUDE.md',
      tar({ name: 'README.md', content: 'x' }),
      { status: 400, code: 'agent_invalid', names: 'CLAUDE.md' },
    ],
    [
      'a CLAUDE.md only further down',
      tar({ name: 'agent/CLAUDE.md' }),
      { status: 400, code: 'agent_invalid', names: 'CLAUDE.md' },
    ],
  ])('with %s is refused', async (_what, archive, refusal) => {
    await refuses(deploy(archive), refusal)
  })

  test('that is a gzip bomb is refused before it is unpacked', async () => {
    const zeros = Buffer.alloc(64 * 1024 * 1024)
    const bomb = gzipSync(
      Buffer.concat([tarEntry(CLAUDE), tarEntry({ name: 'zeros', size: MAX_AGENT_BYTES }), zeros]),
    )
    const rssBefore = await residentBytes()
    await refuses(deploy(bomb), bad('compressed'))
    expect((await residentBytes()) - rssBefore).toBeLessThan(zeros.length)
  })

  test('without a name for the agent is refused', async () => {
    await refuses({ ...deploy(tar(CLAUDE)), path: '/api/agents' }, invalid(undefined, 'name'))
  })

  const residentBytes = async () =>
    1024 * Number(/^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${server.pid()}/status`, 'utf8'))?.[1])
})

describe('a folder', () => {
  const files = (...extra: [string, string][]) => ({
    name: 'folder',
    files: extra.map(([path, text]) => ({ path, content: base64(text) })),
  })
  const agentInvalid = (names: string, field?: string): Refusal => ({
    status: 400,
    code: 'agent_invalid',
    names,
    field,
  })

  test('without CLAUDE.md is refused', async () => {
    await refuses(post('/api/agents', files(['claude.md', 'x'])), agentInvalid('CLAUDE.md'))
    await refuses(post('/api/agents', { name: 'folder' }), agentInvalid('CLAUDE.md'))
  })

  test('with the same file twice is refused', async () => {
    await refuses(
      post('/api/agents', files(['CLAUDE.md', 'x'], ['CLAUDE.md', 'y'])),
      agentInvalid('CLAUDE.md'),
    )
  })

  test.each([
    ['{"maxTurns":"many"}', 'ash.json.maxTurns'],
    ['{"allowedTools":[1]}', 'ash.json.allowedTools.0'],
    ['{"model":""}', 'ash.json.model'],
    ['[]', 'ash.json'],
    ['null', 'ash.json'],
  ])('with the ash.json %s is refused naming the field', async (text, field) => {
    await refuses(
      post('/api/agents', files(['CLAUDE.md', 'x'], ['ash.json', text])),
      agentInvalid(field, field),
    )
  })

  test('with an ash.json that is no JSON, or has an unknown field, is refused', async () => {
    await refuses(post('/api/agents', files(['CLAUDE.md', 'x'], ['ash.json', '{'])), agentInvalid('ash.json'))
    await refuses(
      post('/api/agents', files(['CLAUDE.md', 'x'], ['ash.json', '{"cwd":"/"}'])),
      agentInvalid('cwd'),
    )
  })

  test('on the disk of the server is refused unless the operator allows it', async () => {
    await refuses(post('/api/agents', { name: 'local', path: '/etc' }), { status: 403, code: 'forbidden' })
  })
})

describe('where the operator allows folders of the server', () => {
  let open: TestServer
  let folder: string
  beforeAll(async () => {
    open = await startTestServer({ env: { ASH_ALLOW_PATH_DEPLOY: '1' } })
    folder = await mkdtemp(join(tmpdir(), 'ash-local-'))
    await writeFile(join(folder, 'CLAUDE.md'), '# Local')
    await writeFile(join(folder, '.env'), 'SECRET=1')
    await mkdir(join(folder, 'sub'))
    await writeFile(join(folder, 'sub', 'run.sh'), '#!/bin/sh', { mode: 0o755 })
  })
  afterAll(async () => {
    await open.close()
    await rm(folder, { recursive: true, force: true })
  })

  test('one is deployed without its .env', async () => {
    const { status } = await request(open, post('/api/agents', { name: 'local', path: folder }))
    expect(status).toBe(201)
    const { text } = await request(open, { path: '/api/agents/local/files' })
    const paths = (JSON.parse(text) as { files: { path: string }[] }).files.map(({ path }) => path)
    expect(paths).toEqual(['CLAUDE.md', 'sub', 'sub/run.sh'])
  })

  test('a relative path, no folder, a link in it, or files besides are refused', async () => {
    const unchanged = await listEverything(open)
    await symlink('/etc/passwd', join(folder, 'sub', 'link'))
    const agentInvalid = { status: 400, code: 'agent_invalid' } as const
    const deploy = (extra: object) => post('/api/agents', { name: 'other', ...extra })
    for (const path of ['examples', '../x', join(folder, 'none'), join(folder, 'CLAUDE.md'), `${folder}\0`]) {
      await expectRefused(open, deploy({ path }), { ...agentInvalid, names: 'path' })
    }
    await expectRefused(open, deploy({ path: folder }), { ...agentInvalid, names: 'sub/link' })
    const both = deploy({ path: folder, files: [claudeMd] })
    await expectRefused(open, both, { status: 400, code: 'validation_failed', names: 'path' })
    expect(await listEverything(open)).toEqual(unchanged)
  })
})
