import { AshError, type ErrorCode, type ErrorDetail } from '@ash-ai/shared'
import type { z } from 'zod'

/** Parses what a client sent. Use this where Fastify does not: a bare `parse` would look like a fault of ours. */
export function parseInput<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  part = 'body',
): z.infer<Schema> {
  const result = schema.safeParse(value)
  if (!result.success) throw validationError(toDetails(result.error, part))
  return result.data
}

/** Issues as details; one about the whole value is named `whole`. */
export function toDetails(error: z.ZodError, whole: string): ErrorDetail[] {
  return error.issues.map(({ path, message }) => ({ path: path.map(String).join('.') || whole, message }))
}

export function validationError(details: ErrorDetail[], code: ErrorCode = 'validation_failed'): AshError {
  const text = details.map(({ path, message }) => `${path}: ${message}`).join('; ')
  return new AshError(code, text, { details })
}
