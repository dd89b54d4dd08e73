import { MAX_FILES_PER_REQUEST, RelativePath } from '@ash-ai/shared'
import multipart from '@fastify/multipart'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { receiveFile, takeRawBodies, WriteQuery } from './receive-file.ts'
import { receiveForm } from './receive-form.ts'
import { OfFile, OfSession, type SessionFiles, tags, Written } from './session-files.ts'

const UploadQuery = z.object({
  path: z
    .preprocess((path) => (typeof path === 'string' ? path.replace(/\/$/, '') : path), RelativePath)
    .optional()
    .describe('Folder to put the files in; default the workspace itself'),
})

/** Bytes as the body of a request, and files of a form. */
export function registerFileUploadRoutes(app: FastifyInstance, files: SessionFiles): void {
  app.register((scope, _options, done) => {
    addPut(scope, files)
    done()
  })
  app.register((scope, _options, done) => {
    // Names as they were sent: by default a folder in them would be cut off, not refused.
    scope.register(multipart, { preservePath: true, throwFileSizeLimit: false, limits: FORM_LIMITS })
    addForm(scope, files)
    done()
  })
}

const FORM_LIMITS = {
  files: MAX_FILES_PER_REQUEST,
  parts: MAX_FILES_PER_REQUEST,
  fields: 0,
  fieldNameSize: 255,
  headerPairs: 20,
  // Each is held to the disk of its session as it is written.
  fileSize: Number.POSITIVE_INFINITY,
}

function addPut(scope: FastifyInstance, files: SessionFiles): void {
  takeRawBodies(scope)
  scope.withTypeProvider<ZodTypeProvider>().put(
    '/api/sessions/:id/files/*',
    {
      schema: {
        tags,
        summary: 'Write a file: all of it, or nothing. Honours If-Match and If-None-Match',
        params: OfFile,
        querystring: WriteQuery,
        response: { 200: Written },
      },
      config: { bodies: { raw: ['application/octet-stream'] } },
    },
    async (request, reply) => {
      const { tenantId, params, query } = request
      const target = { tenantId, sessionId: params.id, path: params['*'], mode: query.mode }
      return receiveFile(files, request, reply, target)
    },
  )
}

function addForm(scope: FastifyInstance, files: SessionFiles): void {
  scope.withTypeProvider<ZodTypeProvider>().post(
    '/api/sessions/:id/files/upload',
    {
      schema: {
        tags,
        summary: 'Write the files of a form: all of them, or none',
        params: OfSession,
        querystring: UploadQuery,
        response: { 200: z.object({ files: z.array(Written) }) },
      },
      config: { bodies: { raw: ['multipart/form-data'] } },
    },
    async (request) => {
      const { tenantId, params, query } = request
      return {
        files: await files.change(tenantId, params.id, (workspace) =>
          receiveForm(workspace, query.path, request),
        ),
      }
    },
  )
}
