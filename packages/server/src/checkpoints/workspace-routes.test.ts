import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { CheckpointStore } from '@ash-ai/sandbox'
import { AshError, type Checkpoint, type Session } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createHttpApp } from '../http/http-app.ts'
import { createLogger } from '../http/logger.ts'
import { createMetrics } from '../http/metrics.ts'
import type { CheckpointRow } from './checkpoint-queries.ts'
import { makeSession, makeStore } from './testing/checkpoint-fixture.ts'
import { registerWorkspaceRoutes } from './workspace-routes.ts'

const run = promisify(execFile)
const headers = { authorization: 'Bearer key' }
let opened: TestDb
let app: FastifyInstance
let checkpoints: CheckpointStore
let session: Awaited<ReturnType<typeof makeSession>>
let current: CheckpointRow
let dir: string

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ash-workspace-'))
  opened = await openSqliteTestDb()
  checkpoints = await makeStore()
  session = await makeSession(opened.db, checkpoints)
  current = await session.save({ 'hello.txt': 'hello', 'big.bin': 'big '.repeat(500_000) })
  const { db } = opened
  const log = createLogger('silent')
  app = await createHttpApp({ db, apiKey: 'key', log, metrics: createMetrics(), version: '0' })
  const assertOpen = async (_tenantId: string, id: string) => {
    if (id !== session.id) throw new AshError('session_not_found', `There is no session ${id}`)
  }
  registerWorkspaceRoutes(app, {
    checkpoints,
    assertOpen,
    async checkpointFor(tenantId, sessionId, checkpointId) {
      await assertOpen(tenantId, sessionId)
      if (checkpointId !== undefined) throw new AshError('checkpoint_not_found', 'There is none')
      return current
    },
    async replaceFiles(_tenantId, sessionId, build) {
      current = await build(current.manifest, async ({ manifest }) => ({ ...current, manifest }))
      return { session: { id: sessionId } as Session, checkpoint: { id: current.id } as Checkpoint }
    },
  })
  onTestFinished(async () => {
    await app.close()
    await opened.close()
    await rm(dir, { recursive: true, force: true })
  })
})

const url = (query = '', id = session.id) => `/api/sessions/${id}/workspace${query}`

async function pack(files: Record<string, string>): Promise<Buffer> {
  const folder = await mkdtemp(join(dir, 'packed-'))
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  const file = `${folder}.tar.gz`
  await run('tar', ['-czf', file, '-C', folder, '.'])
  return readFile(file)
}

const upload = (payload: Buffer, query = '', type = 'application/gzip') =>
  app.inject({ method: 'POST', url: url(query), headers: { ...headers, 'content-type': type }, payload })

const listCurrent = async () => {
  const { files } = await checkpoints.list('default', current.manifest, { limit: 100 })
  return files.map(({ path }) => path)
}

test('the workspace is downloaded as an archive that tar unpacks', async () => {
  const reply = await app.inject({ url: url(), headers })
  expect(reply.statusCode).toBe(200)
  expect(reply.headers).toMatchObject({
    'content-type': 'application/gzip',
    'content-disposition': `attachment; filename="${session.id}.tar.gz"`,
    'x-content-type-options': 'nosniff',
  })
  const [file, folder] = [join(dir, 'down.tar.gz'), join(dir, 'down')]
  await writeFile(file, reply.rawPayload)
  await mkdir(folder)
  await run('tar', ['-xzf', file, '-C', folder])
  expect((await readdir(folder)).sort()).toEqual(['big.bin', 'hello.txt'])
  expect(await readFile(join(folder, 'hello.txt'), 'utf8')).toBe('hello')
})

test('an archive is laid over the workspace, or replaces it', async () => {
  const archive = await pack({ 'new.txt': 'new' })
  const over = await upload(archive)
  expect(over.json()).toEqual({ session: { id: session.id }, checkpoint: { id: current.id } })
  expect(await listCurrent()).toEqual(['big.bin', 'hello.txt', 'new.txt'])
  for (const type of ['application/x-tar', 'application/x-gzip', 'application/octet-stream']) {
    expect((await upload(archive, '?replace=true', type)).statusCode).toBe(200)
  }
  expect(await listCurrent()).toEqual(['new.txt'])
})

test('what was downloaded can be uploaded', async () => {
  const before = current.manifest
  const { rawPayload } = await app.inject({ url: url(), headers })
  expect((await upload(rawPayload, '?replace=true')).statusCode).toBe(200)
  const { added, changed, removed } = await checkpoints.diff('default', before, current.manifest, 100)
  expect({ added, changed, removed }).toEqual({ added: [], changed: [], removed: [] })
})

test('what is no archive is refused, and changes nothing', async () => {
  const before = current.manifest
  const reply = await upload(Buffer.from('no archive'))
  expect([reply.statusCode, reply.json().code]).toEqual([400, 'archive_invalid'])
  const typed = await upload(Buffer.from('{}'), '', 'application/json')
  expect([typed.statusCode, typed.json().code]).toEqual([400, 'archive_invalid'])
  const unknown = await upload(Buffer.from('text'), '', 'text/plain')
  expect([unknown.statusCode, unknown.json().code]).toEqual([415, 'unsupported_media_type'])
  const odd = await upload(await pack({}), '?replace=perhaps')
  expect([odd.statusCode, odd.json().code]).toEqual([400, 'validation_failed'])
  expect(current.manifest).toBe(before)
})

test('sessions and checkpoints that do not exist are told before anything is sent', async () => {
  const nobody = '00000000-0000-4000-8000-000000000000'
  const [down, at] = [url('', nobody), url(`?checkpointId=${nobody}`)]
  expect((await app.inject({ url: down, headers })).json().code).toBe('session_not_found')
  expect((await app.inject({ url: at, headers })).json().code).toBe('checkpoint_not_found')
  const up = await app.inject({
    method: 'POST',
    url: url('', nobody),
    headers: { ...headers, 'content-type': 'application/gzip' },
    payload: await pack({}),
  })
  expect(up.json().code).toBe('session_not_found')
})

test('a damaged checkpoint is an error and not half an archive', async () => {
  current = { ...current, manifest: 'a'.repeat(64) }
  const reply = await app.inject({ url: url(), headers })
  expect([reply.statusCode, reply.json().code]).toEqual([500, 'checkpoint_damaged'])
})

test('downloads that nobody reads are bounded, and over when their clients are gone', async () => {
  // More than fits into the buffers on the way.
  current = await session.save({ 'random.txt': randomBytes(12_000_000).toString('base64') })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const stuck = await Promise.all(Array.from({ length: 16 }, () => beginDownload(port)))
  const download = async () => {
    const reply = await fetch(`http://127.0.0.1:${port}${url()}`, { headers })
    await reply.arrayBuffer()
    return reply.status
  }
  expect(await download()).toBe(429)
  for (const socket of stuck) socket.destroy()
  await expect.poll(download, { timeout: 10_000 }).toBe(200)
})

/** Asks for the archive, and reads nothing after its first bytes. */
async function beginDownload(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.write(`GET ${url()} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key\r\n\r\n`)
  await once(socket, 'readable')
  return socket
}
