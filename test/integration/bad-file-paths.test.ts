import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { base64, deployTestAgent } from './support/conversation.ts'
import type { RawRequest } from './support/raw-http.ts'
import { expectNothingChanges, expectRefused, invalid, post, type Refusal } from './support/refusals.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const DISK_MB = 64

let server: TestServer
let sessionId: string
/** A folder outside, where links planted in the workspace point to. */
let outside: string

beforeAll(async () => {
  outside = await mkdtemp(join(tmpdir(), 'ash-outside-'))
  server = await startTestServer()
  await deployTestAgent(server.client)
  sessionId = (await server.client.sessions.create({ agent: 'zebra', limits: { diskMb: DISK_MB } })).id
  await writeFile(join(outside, 'secret.txt'), 'outside')
  await plantLinks()
})
afterAll(async () => {
  await server.close()
  await rm(outside, { recursive: true, force: true })
})

/** Made by code inside the sandbox, as an agent would. */
async function plantLinks() {
  const command = `ln -s ${outside} away; ln -s ${outside}/secret.txt secret; ln -s .. up
    ln -s CLAUDE.md near; mkdir sub; ln -s ../../../.. sub/top; mkfifo pipe`
  expect(await server.client.sessions.exec(sessionId, { command })).toMatchObject({ exitCode: 0, stderr: '' })
}

const refuses = (raw: RawRequest, refusal: Refusal) => expectRefused(server, raw, refusal)

describe('a file path', () => {
  expectNothingChanges(() => [server, sessionId])
  const file = (method: string, path: string): RawRequest => ({
    method,
    path: `/api/sessions/${sessionId}/files/${path}`,
    ...(method === 'PUT' && { body: 'evil' }),
  })
  const invalidPath = { status: 400, code: 'path_invalid' } as const

  test.each([
    '..',
    '../x',
    '%2e%2e',
    '%2e%2e%2f%2e%2e%2fetc%2fpasswd',
    'a/../../x',
    '/etc/passwd',
    '%2fetc%2fpasswd',
    '.',
    './x',
    'a//b',
    'a/',
    'x%00',
    '%00',
    '..%5cx',
    'x'.repeat(256),
    `${'a/'.repeat(600)}a`,
  ])('%s is refused for reading, writing and deleting', async (path) => {
    for (const method of ['GET', 'PUT', 'DELETE']) await refuses(file(method, path), invalidPath)
    await refuses(
      { path: `/api/sessions/${sessionId}/files?path=${path.replaceAll('&', '%26')}` },
      invalid('path'),
    )
  })

  test.each([
    'away/secret.txt',
    'away/sub/new.txt',
    'up/home',
    'sub/top/etc/passwd',
    'sub/top/new.txt',
    'near/x',
  ])('%s, through a link that the agent made, is refused for reading, writing and deleting', async (path) => {
    for (const method of ['GET', 'PUT', 'DELETE'])
      await refuses(file(method, path), { ...invalidPath, names: path })
    const files = [
      { path: 'harmless.txt', content: '' },
      { path, content: base64('evil') },
    ]
    await refuses(post(`/api/sessions/${sessionId}/files`, { files }), { ...invalidPath, names: path })
    expect(await readdir(outside)).toEqual(['secret.txt'])
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('outside')
  })

  test.each(['secret', 'near', 'away', 'up'])(
    '%s, itself a link, is refused for reading and writing',
    async (path) => {
      for (const raw of [file('GET', path), file('GET', `${path}?format=json`), file('PUT', path)])
        await refuses(raw, { ...invalidPath, names: path })
      await refuses({ path: `/api/sessions/${sessionId}/files?path=${path}` }, invalidPath)
      expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('outside')
    },
  )

  test('of a folder or a pipe is no file to read or write', async () => {
    for (const path of ['sub', 'pipe']) {
      for (const method of ['GET', 'PUT'])
        await refuses(file(method, path), { status: 400, code: 'not_a_file', names: path })
    }
  })

  test('of nothing is not found', async () => {
    for (const method of ['GET', 'DELETE'])
      await refuses(file(method, 'no/such.txt'), {
        status: 404,
        code: 'file_not_found',
        names: 'no/such.txt',
      })
    await refuses(
      { path: `/api/sessions/${sessionId}/files?path=no` },
      { status: 404, code: 'file_not_found' },
    )
  })

  test('of a file larger than the disk of the session is refused, and nothing of it is left', async () => {
    const refusal = { status: 413, code: 'payload_too_large' } as const
    const length = { 'content-length': String(DISK_MB * 1024 ** 2 + 1) }
    await refuses({ ...file('PUT', 'big'), headers: length, body: [Buffer.alloc(1)] }, refusal)
    // More than fits, and no more: the server has then read all that was sent when it refuses.
    const chunks = Array<Uint8Array>(DISK_MB).fill(Buffer.alloc(1024 ** 2))
    await refuses({ ...file('PUT', 'big'), body: chunks }, { status: 507, code: 'disk_full' })
  })
})

describe('a link in the workspace', () => {
  test('is listed as a link, and deleting it leaves what it points to', async () => {
    const { client } = server
    const { id } = await client.sessions.create({ agent: 'zebra' })
    await client.sessions.exec(id, { command: `ln -s ${outside} away; mkdir sub; ln -s ${outside} sub/away` })
    const { files } = await client.files.list(id)
    expect(files.filter(({ type }) => type === 'link').map(({ path }) => path)).toEqual(['away', 'sub/away'])
    expect(files.map(({ path }) => path)).not.toContain('away/secret.txt')
    await client.files.delete(id, 'away')
    await client.files.delete(id, 'sub')
    expect((await client.files.list(id)).files.map(({ path }) => path)).toEqual(['CLAUDE.md'])
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('outside')
    await client.sessions.end(id)
  })
})
