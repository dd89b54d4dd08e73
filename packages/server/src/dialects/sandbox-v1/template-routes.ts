import { DEFAULT_RUN_TIMEOUT_MS, SessionMode, type Template, TemplateName } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { parseInput } from '../../http/validation-error.ts'
import {
  deleteTemplate,
  getTemplate,
  getTemplateForSession,
  insertTemplate,
  listTemplates,
  putTemplate,
} from '../../templates/template-queries.ts'
import { assertUsable } from '../../templates/template-settings.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { TemplateId, V1Page } from './session-schemas.ts'
import { toSettings, toV1Template, V1TemplateCreate, V1TemplateUpdate } from './template-mapper.ts'

const OfTemplate = z.object({ id: TemplateId })

export function addTemplateRoutes(scope: FastifyInstance, { sessions }: DialectDeps): void {
  const routes = scope.withTypeProvider<ZodTypeProvider>()
  const show = (template: Template) => toV1Template(template, sessions.limits, DEFAULT_RUN_TIMEOUT_MS)
  const renew = (tenantId: string, name: string) => {
    for (const of of SessionMode.options) sessions.spares.renew({ tenantId, of, name })
  }

  routes.post('/templates', { schema: { body: V1TemplateCreate } }, async ({ tenantId, body }, reply) => {
    const name = parseInput(TemplateName, body.id, 'id')
    const settings = toSettings(body, { languages: ['python', 'shell'] })
    await assertUsable(settings, sessions.limits)
    const template = await insertTemplate(sessions, tenantId, name, settings)
    renew(tenantId, name)
    return reply.code(201).send(show(template))
  })

  routes.get('/templates', { schema: { querystring: V1Page } }, async ({ tenantId, query }) => {
    const { templates } = await listTemplates(sessions, tenantId, { limit: query.offset + query.limit })
    return templates.slice(query.offset).map(show)
  })

  routes.get('/templates/:id', { schema: { params: OfTemplate } }, async ({ tenantId, params }) =>
    show(await getTemplate(sessions, tenantId, params.id)),
  )

  routes.put(
    '/templates/:id',
    { schema: { params: OfTemplate, body: V1TemplateUpdate } },
    async ({ tenantId, params, body }) => {
      const { settings, env } = await getTemplateForSession(sessions, tenantId, params.id)
      const changed = toSettings(body, { ...settings, env })
      await assertUsable(changed, sessions.limits)
      const { template } = await putTemplate(sessions, tenantId, params.id, changed)
      renew(tenantId, params.id)
      return show(template)
    },
  )

  routes.delete('/templates/:id', { schema: { params: OfTemplate } }, async ({ tenantId, params }, reply) => {
    await deleteTemplate(sessions.db, tenantId, params.id)
    for (const of of SessionMode.options) await sessions.spares.forget({ tenantId, of, name: params.id })
    return reply.code(204).send()
  })
}
