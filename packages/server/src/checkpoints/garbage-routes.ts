import { GarbageReport, GarbageRequest } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { collectGarbage, type GarbageDeps } from './garbage.ts'

export function registerGarbageRoutes(app: FastifyInstance, deps: GarbageDeps): void {
  app.withTypeProvider<ZodTypeProvider>().post(
    '/api/gc',
    {
      schema: {
        tags: ['platform'],
        summary: 'Delete stored files that no checkpoint refers to any more',
        body: GarbageRequest.nullish(),
        response: { 200: GarbageReport },
      },
    },
    async ({ tenantId, body }) => collectGarbage(deps, tenantId, { dryRun: body?.dryRun }),
  )
}
