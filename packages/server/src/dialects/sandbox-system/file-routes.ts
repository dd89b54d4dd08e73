import { AshError, type FileEntry, isAshError, MAX_FILE_BYTES } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { listFiles } from '../../files/list-files.ts'
import { openFile } from '../../files/read-file.ts'
import { writeFile } from '../../files/write-file.ts'
import { validationError } from '../../http/validation-error.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { inWorkspace } from '../workspace-path.ts'
import { listKeptFiles, readKeptFile } from './kept-files.ts'
import { AnyId } from './session-routes.ts'

/** Of a file that comes or goes as text of a JSON body. */
const MAX_BASE64_FILE_BYTES = 16 * 1024 * 1024
const MAX_BODY_BYTES = 24 * 1024 * 1024
const MAX_LISTED = 10_000

const Write = z.object({
  session_id: AnyId,
  file_path: z.string().min(1).max(4096),
  content: z.base64().describe('The bytes, base64'),
})
const OfSession = z.object({ sid: AnyId })
const OfFile = OfSession.extend({ '*': z.string() })
const ListQuery = z.object({ directory: z.string().max(4096).default('/') })

/** Those of the workspace; of a session that has ended, what its executions left. */
export function addSystemFiles(scope: FastifyInstance, deps: DialectDeps): void {
  const { files } = deps
  const routes = scope.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/e2b/files/:sid',
    { schema: { params: OfSession, querystring: ListQuery } },
    async ({ tenantId, params, query: { directory } }) => {
      const folder = inWorkspace(directory)
      const found = await ifEnded(
        () => listFolder(deps, tenantId, params.sid, folder),
        () => listKept(deps, tenantId, params.sid, folder),
      )
      const shown = found.map(({ path, type, size }) => ({ name: nameOf(path), path, type, size }))
      return { session_id: params.sid, directory, files: shown }
    },
  )

  routes.get('/api/e2b/files/:sid/*', { schema: { params: OfFile } }, async ({ tenantId, params }) => {
    const path = pathOf(params['*'])
    const maxBytes = MAX_BASE64_FILE_BYTES
    const bytes = await ifEnded(
      () => readLive(deps, tenantId, params.sid, path),
      () => readKeptFile(deps.sessions, { tenantId, sessionId: params.sid, path, maxBytes }),
    )
    const content = bytes.toString('base64')
    return { session_id: params.sid, file_path: params['*'], content, encoding: 'base64' }
  })

  routes.post(
    '/api/e2b/files',
    { bodyLimit: MAX_BODY_BYTES, schema: { body: Write } },
    async ({ tenantId, body: { session_id, file_path, content } }) => {
      const path = pathOf(file_path)
      const bytes = Buffer.from(content, 'base64')
      await files.change(tenantId, session_id, (workspace) =>
        writeFile(workspace, path, [bytes], { maxBytes: workspace.maxFileBytes ?? MAX_FILE_BYTES }),
      )
      return { status: 'success', file_path }
    },
  )
}

/** The folder of a session is gone with it; what executions left in it is kept. */
async function ifEnded<Result>(live: () => Promise<Result>, kept: () => Promise<Result>): Promise<Result> {
  try {
    return await live()
  } catch (error) {
    if (isAshError(error, 'session_ended')) return kept()
    throw error
  }
}

type Listed = Pick<FileEntry, 'path' | 'type' | 'size'>

async function listFolder(
  { files }: DialectDeps,
  tenantId: string,
  sessionId: string,
  path: string | undefined,
): Promise<Listed[]> {
  const options = { path, limit: MAX_LISTED, recursive: false }
  return (await listFiles(await files.open(tenantId, sessionId), options)).files
}

/** Those in folders below among them: of folders nothing is kept. */
async function listKept(
  { sessions }: DialectDeps,
  tenantId: string,
  sessionId: string,
  folder: string | undefined,
): Promise<Listed[]> {
  const kept = await listKeptFiles(sessions, tenantId, sessionId)
  return kept
    .filter(({ path }) => folder === undefined || path.startsWith(`${folder}/`))
    .map(({ path, size }) => ({ path, size, type: 'file' as const }))
}

async function readLive({ files }: DialectDeps, tenantId: string, sessionId: string, path: string) {
  await using file = await openFile(await files.open(tenantId, sessionId), path)
  if (file.size > MAX_BASE64_FILE_BYTES)
    throw new AshError('payload_too_large', `"${path}" is longer than ${MAX_BASE64_FILE_BYTES} bytes`)
  const bytes: Buffer[] = file.size === 0 ? [] : await file.stream().toArray()
  return Buffer.concat(bytes)
}

const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1)

function pathOf(path: string): string {
  const inside = inWorkspace(path)
  if (inside === undefined) throw validationError([{ path: 'file_path', message: 'must name a file' }])
  return inside
}
