import { AshError } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { DialectDeps } from '../dialect-deps.ts'
import { speakDialect } from '../dialect-scope.ts'
import { addContainerRoutes } from './container-routes.ts'
import { addExecutionRoutes } from './execution-routes.ts'
import { addFileRoutes } from './file-routes.ts'
import { addHealthRoutes } from './health-routes.ts'
import { addSessionRoutes } from './session-routes.ts'
import { addTemplateRoutes } from './template-routes.ts'
import { speakErrors } from './v1-errors.ts'

/** `/api/v1`: the sandbox platform's own words, in snake case, over the same sessions. */
export function registerSandboxV1(app: FastifyInstance, deps: DialectDeps): void {
  app.register(
    (scope, _options, done) => {
      speakErrors(scope)
      speakDialect(scope)
      scope.setNotFoundHandler(({ method, url }) => {
        throw new AshError('route_not_found', `${method} ${url.split('?', 1)[0]} does not exist`)
      })
      addSessionRoutes(scope, deps)
      addExecutionRoutes(scope, deps)
      addFileRoutes(scope, deps)
      addTemplateRoutes(scope, deps)
      addContainerRoutes(scope, deps)
      addHealthRoutes(scope, deps)
      done()
    },
    { prefix: '/api/v1' },
  )
}
