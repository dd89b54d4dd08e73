import { AshError, MAX_FILE_BYTES } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { acceptExecution } from '../../executions/accept-execution.ts'
import { toSummary } from '../../executions/execution-reply.ts'
import { outcomeOf } from '../../executions/show-execution.ts'
import { listFiles } from '../../files/list-files.ts'
import { openFile } from '../../files/read-file.ts'
import { writeFile } from '../../files/write-file.ts'
import { validationError } from '../../http/validation-error.ts'
import { getOpenSession } from '../../sessions/open-session.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { inWorkspace } from '../workspace-path.ts'
import { DEFAULT_URL_PORT, sandboxUrl } from './sandbox-url.ts'
import { AnyId } from './session-routes.ts'
import { toLanguage, toOutcome } from './system-mapper.ts'

const MAX_CODE_CHARS = 1024 * 1024
/** Of a file that comes or goes as text of a JSON body. */
const MAX_BASE64_FILE_BYTES = 16 * 1024 * 1024
const MAX_BODY_BYTES = 24 * 1024 * 1024
const MAX_LISTED = 10_000

const Execute = z.object({
  session_id: AnyId,
  code: z.string().min(1).max(MAX_CODE_CHARS),
  language: z
    .string()
    .default('python')
    .refine((name) => toLanguage(name) !== undefined, 'must be python, javascript or shell'),
})
const Write = z.object({
  session_id: AnyId,
  file_path: z.string().min(1).max(4096),
  content: z.base64().describe('The bytes, base64'),
})
const OfSession = z.object({ sid: AnyId })
const OfFile = OfSession.extend({ '*': z.string() })
const UrlQuery = z.object({ port: z.coerce.number().int().min(1).max(65_535).default(DEFAULT_URL_PORT) })
const ListQuery = z.object({ directory: z.string().max(4096).default('/') })

export function addE2bRoutes(scope: FastifyInstance, deps: DialectDeps): void {
  const { sessions } = deps
  const routes = scope.withTypeProvider<ZodTypeProvider>()

  routes.post(
    '/api/e2b/execute',
    { bodyLimit: MAX_BODY_BYTES, schema: { body: Execute } },
    async ({ tenantId, body: { session_id, code, language } }) => {
      const caller = { tenantId, isWaiting: true }
      const request = { code, language: toLanguage(language) }
      const accepted = await acceptExecution(sessions, caller, session_id, request)
      const { row, output } = await outcomeOf(sessions, accepted)
      return toOutcome(toSummary({ ...row, has_result: 0 }), output, row.results)
    },
  )

  routes.get(
    '/api/e2b/url/:sid',
    { schema: { params: OfSession, querystring: UrlQuery } },
    async ({ tenantId, params, query: { port } }) => {
      const { id } = await getOpenSession(sessions.db, tenantId, params.sid)
      const url = sandboxUrl(deps.previews, { tenantId, sessionId: id, port })
      if (url !== null) return { session_id: id, url }
      throw new AshError('route_not_found', 'Previews are switched off on this server by ASH_PREVIEW_PORT')
    },
  )

  addFiles(scope, deps)
}

function addFiles(scope: FastifyInstance, { files }: DialectDeps): void {
  const routes = scope.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/e2b/files/:sid',
    { schema: { params: OfSession, querystring: ListQuery } },
    async ({ tenantId, params, query: { directory } }) => {
      const source = await files.open(tenantId, params.sid)
      const options = { path: inWorkspace(directory), limit: MAX_LISTED, recursive: false }
      const listing = await listFiles(source, options)
      const found = listing.files.map(({ path, type, size }) => ({ name: nameOf(path), path, type, size }))
      return { session_id: params.sid, directory, files: found }
    },
  )

  routes.get('/api/e2b/files/:sid/*', { schema: { params: OfFile } }, async ({ tenantId, params }) => {
    const path = pathOf(params['*'])
    await using file = await openFile(await files.open(tenantId, params.sid), path)
    if (file.size > MAX_BASE64_FILE_BYTES)
      throw new AshError('payload_too_large', `"${path}" is longer than ${MAX_BASE64_FILE_BYTES} bytes`)
    const bytes: Buffer[] = file.size === 0 ? [] : await file.stream().toArray()
    const content = Buffer.concat(bytes).toString('base64')
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

const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1)

function pathOf(path: string): string {
  const inside = inWorkspace(path)
  if (inside === undefined) throw validationError([{ path: 'file_path', message: 'must name a file' }])
  return inside
}
