import { MAX_MESSAGE_CHARS } from '@ash-ai/shared'
import type { FastifySchemaCompiler } from 'fastify'
import { validatorCompiler } from 'fastify-type-provider-zod'

/**
 * Validates by the schemas, except that a message of a text and nothing else is passed as it is: that is what most are,
 * and looking for three dozen options in it costs more than anything else a request does before its turn begins.
 */
export const messageValidator: FastifySchemaCompiler<unknown> = (route) => {
  const validate = validatorCompiler(route as Parameters<typeof validatorCompiler>[0])
  if (route.httpPart !== 'body') return validate
  return (body: unknown) => (isPlainMessage(body) ? { value: body } : validate(body))
}

function isPlainMessage(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return false
  const { content, ...rest } = body as Record<string, unknown>
  for (const _ in rest) return false
  return typeof content === 'string' && content.length > 0 && content.length <= MAX_MESSAGE_CHARS
}
