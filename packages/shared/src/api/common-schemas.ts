import { z } from 'zod'
import { MAX_PATH_CHARS } from '../constants.ts'
import { ERRORS, type ErrorCode } from '../errors.ts'

export const SessionId = z.uuid({ error: 'must be a UUID' })

export const AgentName = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/,
    'must be 1 to 128 letters, digits, "-" or "_", starting with a letter or digit',
  )

/** A path inside a workspace or agent folder: relative, normalised, no `..`. */
export const RelativePath = z
  .string()
  .min(1, 'must not be empty')
  .max(MAX_PATH_CHARS)
  .refine(isRelativePath, 'must be a relative path without "..", "." or empty parts, backslashes or NUL')

export function isRelativePath(path: string): boolean {
  if (/[\0\\]/.test(path)) return false
  return path.split('/').every((part) => part !== '' && part !== '.' && part !== '..' && part.length <= 255)
}

const EnvName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, 'must be a variable name')
const MAX_ENV_VALUE_CHARS = 32_768
export const Env = z
  .record(
    EnvName,
    z
      .string()
      .max(MAX_ENV_VALUE_CHARS)
      .refine((value) => !value.includes('\0'), 'must not contain NUL'),
  )
  .refine((env) => Object.keys(env).length <= 200, 'must have at most 200 variables')

export const Paging = z.object({
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  cursor: z.string().max(200).optional(),
})

export const ErrorReply = z
  .object({
    error: z.string(),
    code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]),
    statusCode: z.number().int(),
    requestId: z.string(),
    details: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
  })
  .meta({ id: 'Error' })
export type ErrorReply = z.infer<typeof ErrorReply>

export const IsoTime = z.iso.datetime()
