import { posix } from 'node:path'
import { SANDBOX_PATHS } from '@ash-ai/sandbox'
import type { FileEntry } from '@ash-ai/shared'
import multipart from '@fastify/multipart'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { storedEtagOf } from '../../files/http-conditions.ts'
import { listFiles } from '../../files/list-files.ts'
import { maxBytesIn } from '../../files/receive-file.ts'
import { receiveForm } from '../../files/receive-form.ts'
import { sendFile } from '../../files/send-file.ts'
import type { Workspace } from '../../files/workspace-folder.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { inWorkspace } from '../workspace-path.ts'
import { shownId } from './session-mapper.ts'
import { getV1Session } from './session-queries.ts'
import { OfSession } from './session-schemas.ts'

const MAX_UPLOAD_BYTES = 100 * 1024 * 1024

const ListQuery = z.object({
  path: z.string().max(4096).optional(),
  limit: z.coerce.number().int().min(1).max(10_000).default(1000),
})
const UploadQuery = z.object({ path: z.string().max(4096).optional() })
const OfFile = OfSession.extend({ '*': z.string() })

export function addFileRoutes(scope: FastifyInstance, deps: DialectDeps): void {
  const { files } = deps
  const { db } = deps.sessions
  const routes = scope.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/sessions/:id/files',
    { schema: { params: OfSession, querystring: ListQuery } },
    async ({ tenantId, params, query: { path = '', limit } }) => {
      const session = await getV1Session(db, tenantId, params.id)
      const listing = await listFiles(await files.open(tenantId, session.id), {
        path: inWorkspace(path),
        limit,
      })
      const found = listing.files.filter(({ type }) => type === 'file').map(toV1File)
      return { session_id: shownId(session), files: found, count: found.length }
    },
  )

  routes.get('/sessions/:id/files/*', { schema: { params: OfFile } }, async (request, reply) => {
    const { id } = await getV1Session(db, request.tenantId, request.params.id)
    const source = await files.open(request.tenantId, id)
    return sendFile(request, reply, source, inWorkspace(request.params['*']) ?? '')
  })

  scope.register((forms, _options, done) => {
    forms.register(multipart, { preservePath: true, throwFileSizeLimit: false, limits: FORM_LIMITS })
    addUpload(forms, deps)
    done()
  })
}

const FORM_LIMITS = {
  files: 1,
  parts: 1,
  fields: 0,
  fieldNameSize: 255,
  headerPairs: 20,
  // Held to its limit as it is written.
  fileSize: Number.POSITIVE_INFINITY,
}

function addUpload(forms: FastifyInstance, { sessions, files }: DialectDeps): void {
  forms
    .withTypeProvider<ZodTypeProvider>()
    .post(
      '/sessions/:id/files/upload',
      { schema: { params: OfSession, querystring: UploadQuery } },
      async (request) => {
        const { tenantId, params, query } = request
        const session = await getV1Session(sessions.db, tenantId, params.id)
        const place = placeOf(query.path)
        const [written] = await files.change(tenantId, session.id, (workspace) =>
          receiveForm(withUploadLimit(workspace), place.folder, formNaming(request, place.name)),
        )
        return { session_id: shownId(session), file_path: written?.path, size: written?.size }
      },
    )
}

/** The path of the file, or with a slash at its end that of the folder it goes to under its own name. */
function placeOf(path = ''): { folder: string | undefined; name: string | undefined } {
  const inside = inWorkspace(path)
  if (inside === undefined || path.endsWith('/')) return { folder: inside, name: undefined }
  const folder = posix.dirname(inside)
  return { folder: folder === '.' ? undefined : folder, name: posix.basename(inside) }
}

const withUploadLimit = (workspace: Workspace): Workspace => ({
  ...workspace,
  maxFileBytes: Math.min(MAX_UPLOAD_BYTES, maxBytesIn(workspace)),
})

/** The form of a request, its file under another name. */
function formNaming(
  request: FastifyRequest,
  name: string | undefined,
): Pick<FastifyRequest, 'isMultipart' | 'parts'> {
  const parts = async function* () {
    for await (const part of request.parts())
      yield part.type === 'file' && name !== undefined ? Object.assign(part, { filename: name }) : part
  }
  return { isMultipart: () => request.isMultipart(), parts }
}

const toV1File = ({ path, size, modifiedAt }: FileEntry) => ({
  name: path,
  container_path: `${SANDBOX_PATHS.workspace}/${path}`,
  size,
  modified_time: modifiedAt,
  etag: storedEtagOf(size, new Date(modifiedAt)).replaceAll('"', ''),
})
