import { type ErrorReply, isErrorCode } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { DialectDeps } from '../dialect-deps.ts'
import { speakDialect } from '../dialect-scope.ts'
import { addE2bRoutes } from './e2b-routes.ts'
import { addSystemFiles } from './file-routes.ts'
import { addSystemSessions, type ProviderMap } from './session-routes.ts'

/** The stateful sandbox system's API. It shares paths with ours, so it needs a listener of its own. */
export function registerSandboxSystem(app: FastifyInstance, deps: DialectDeps, providers: ProviderMap): void {
  app.register((scope, _options, done) => {
    speakDialect(scope)
    scope.addHook('preSerialization', async (_request, _reply, payload) =>
      isErrorReply(payload) ? { detail: payload.error, ...payload } : payload,
    )
    scope.get('/', async () => ({ message: 'Sandbox System API' }))
    addSystemSessions(scope, deps, providers)
    addE2bRoutes(scope, deps)
    addSystemFiles(scope, deps)
    addDeprecated(scope)
    done()
  })
}

const INSTEAD = {
  start: ['POST', 'POST /api/sessions'],
  stop: ['POST', 'DELETE /api/sessions/{session_id}'],
  'status/:id': ['GET', 'GET /api/sessions/{session_id}'],
} as const

function addDeprecated(scope: FastifyInstance): void {
  for (const [path, [method, instead]] of Object.entries(INSTEAD))
    scope.route({
      method,
      url: `/api/sandbox/${path}`,
      handler: async (_request, reply) =>
        reply.code(410).send({ detail: `This endpoint is deprecated. Use ${instead} instead.` }),
    })
}

const isErrorReply = (payload: unknown): payload is ErrorReply =>
  typeof payload === 'object' && payload !== null && 'code' in payload && isErrorCode(payload.code)
