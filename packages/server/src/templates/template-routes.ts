import {
  type Limits,
  Paging,
  SessionMode,
  Template,
  TemplateCreate,
  TemplateName,
  TemplateSettings,
} from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import type { WarmSpares } from '../sandboxes/warm-spares.ts'
import {
  deleteTemplate,
  getTemplate,
  insertTemplate,
  listTemplates,
  putTemplate,
  type TemplateStore,
} from './template-queries.ts'
import { assertUsable } from './template-settings.ts'

interface TemplateRouteDeps extends TemplateStore {
  /** The most that a sandbox may use. */
  limits: Limits
  spares: Pick<WarmSpares, 'renew' | 'forget'>
}

const Params = z.object({ name: TemplateName })
const OneTemplate = z.object({ template: Template })
const ListQuery = Paging.extend({ cursor: TemplateName.optional() })
const tags = ['templates']

export function registerTemplateRoutes(app: FastifyInstance, deps: TemplateRouteDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const renew = (tenantId: string, name: string) => {
    for (const of of SessionMode.options) deps.spares.renew({ tenantId, of, name })
  }

  routes.post(
    '/api/templates',
    {
      schema: {
        tags,
        summary: 'Make a template: an environment that sessions begin with',
        body: TemplateCreate,
        response: { 201: OneTemplate },
      },
    },
    async ({ tenantId, body: { name, ...settings } }, reply) => {
      await assertUsable(settings, deps.limits)
      const template = await insertTemplate(deps, tenantId, name, settings)
      renew(tenantId, name)
      return reply.code(201).send({ template })
    },
  )

  routes.get(
    '/api/templates',
    {
      schema: {
        tags,
        summary: 'List templates by name, those that are built in among them',
        querystring: ListQuery,
        response: { 200: z.object({ templates: z.array(Template), nextCursor: z.string().optional() }) },
      },
    },
    async ({ tenantId, query: { limit, cursor } }) => listTemplates(deps, tenantId, { limit, after: cursor }),
  )

  routes.get(
    '/api/templates/:name',
    { schema: { tags, summary: 'Read a template', params: Params, response: { 200: OneTemplate } } },
    async ({ tenantId, params }) => ({ template: await getTemplate(deps, tenantId, params.name) }),
  )

  routes.put(
    '/api/templates/:name',
    {
      schema: {
        tags,
        summary: 'Make a template, or replace it whole; sessions that exist stay as they are',
        params: Params,
        body: TemplateSettings,
        response: { 200: OneTemplate, 201: OneTemplate },
      },
    },
    async ({ tenantId, params: { name }, body }, reply) => {
      await assertUsable(body, deps.limits)
      const { template, isNew } = await putTemplate(deps, tenantId, name, body)
      renew(tenantId, name)
      return reply.code(isNew ? 201 : 200).send({ template })
    },
  )

  routes.delete(
    '/api/templates/:name',
    {
      schema: {
        tags,
        summary: 'Delete a template that no open session and no agent uses',
        params: Params,
        response: { 200: z.object({ ok: z.literal(true) }) },
      },
    },
    async ({ tenantId, params: { name } }) => {
      await deleteTemplate(deps.db, tenantId, name)
      for (const of of SessionMode.options) await deps.spares.forget({ tenantId, of, name })
      return { ok: true as const }
    },
  )
}
