import { ErrorReply } from '@ash-ai/shared'
import swagger, { type SwaggerTransform } from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyInstance, onRequestHookHandler } from 'fastify'
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod'
import type { z } from 'zod'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** For the API document, of a route that reads its body itself: a JSON schema, media types sent as bytes. */
    bodies?: { json?: z.ZodType; raw: readonly string[] }
  }
}

/** Serves the API document made from the routes registered after this call, and a page to read it. */
export async function addOpenApi(app: FastifyInstance, version: string): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Ash', version, description: 'Agents, sessions and sandboxes over REST and SSE.' },
      components: { securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } } },
      security: [{ bearer: [] }],
    },
    transform: describeRoute,
    transformObject: jsonSchemaTransformObject,
  })
  await app.register(swaggerUi, { routePrefix: '/docs', uiHooks: { onRequest: forbidFrames } })
  app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())
}

/** What is clicked in there acts: no page is to lay itself over it. */
const forbidFrames: onRequestHookHandler = (_request, reply, done) => {
  reply.headers({ 'x-frame-options': 'DENY', 'content-security-policy': "frame-ancestors 'none'" })
  done()
}

const describeRoute: SwaggerTransform = (input) => {
  const { url, route } = input
  if (url === '/docs' || url.startsWith('/docs/')) return { schema: { hide: true }, url }
  const bodies = route.config?.bodies
  const schema = {
    ...input.schema,
    ...(bodies?.json && { body: bodies.json }),
    response: { ...responsesOf(input.schema), default: ErrorReply },
  }
  const described = jsonSchemaTransform({ ...input, schema } as Parameters<typeof jsonSchemaTransform>[0])
  return bodies ? { ...described, schema: withRawBodies(described.schema, bodies.raw) } : described
}

const responsesOf = (schema: { response?: unknown } | undefined) =>
  typeof schema?.response === 'object' ? schema.response : {}

type Described = ReturnType<SwaggerTransform>['schema']

function withRawBodies(schema: Described, rawTypes: readonly string[]): Described {
  const json = schema.body === undefined ? [] : [['application/json', { schema: schema.body }]]
  const raw = rawTypes.map((type) => [type, { schema: { type: 'string', format: 'binary' } }])
  return { ...schema, body: { content: Object.fromEntries([...json, ...raw]) } }
}
