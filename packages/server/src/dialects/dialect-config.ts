import { z } from 'zod'
import type { DialectOptions } from './dialect-app.ts'

export interface DialectConfig extends DialectOptions {
  /** 0: any that is free. */
  readonly port: number
}

const PAIR = /^([a-z0-9-]{1,64})=([a-z0-9-]{1,64})$/

/** `e2b=bwrap,docker=bwrap`: what is asked for, and what there is. */
export const ProviderPairs = z.string().transform((text, context) => {
  const pairs = text.split(',').map((pair) => PAIR.exec(pair.trim().toLowerCase()))
  const entries = pairs.flatMap((pair) => (pair?.[1] && pair[2] ? [[pair[1], pair[2]] as const] : []))
  if (entries.length === pairs.length) return Object.fromEntries(entries)
  context.addIssue({ code: 'custom', message: 'must be pairs such as e2b=bwrap,docker=bwrap' })
  return z.NEVER
})

/** Undefined: the dialects have no listener of their own. Their keys are off where those of the server are. */
export function dialectConfig(variables: {
  ASH_KEYS: 'on' | 'off'
  ASH_DIALECT_PORT?: number | undefined
  ASH_DIALECT_KEYS?: 'on' | 'off' | undefined
  ASH_DIALECT_PROVIDER_MAP: Record<string, string>
}): DialectConfig | undefined {
  const { ASH_DIALECT_PORT: port, ASH_DIALECT_PROVIDER_MAP: providers } = variables
  const keys = variables.ASH_DIALECT_KEYS ?? variables.ASH_KEYS
  return port === undefined ? undefined : { port, keys, providers }
}
