import { AshError } from '@ash-ai/shared'
import { z } from 'zod'
import { openClaims, signClaims } from '../http/signed-claims.ts'

/** What a link lets whoever has it do, and until when. */
export interface LinkClaims {
  tenantId: string
  sessionId: string
  path: string
  method: 'GET' | 'PUT'
  expiresAtMs: number
}

const Claims = z.tuple([z.string(), z.string(), z.string(), z.enum(['GET', 'PUT']), z.number()])

export function signLink(key: Buffer, claims: LinkClaims): string {
  const { tenantId, sessionId, path, method, expiresAtMs } = claims
  return signClaims(key, [tenantId, sessionId, path, method, expiresAtMs])
}

/** Throws forbidden unless this server made the token, for this method, and its time has not passed. */
export function openLink(key: Buffer, token: string, method: 'GET' | 'PUT'): LinkClaims {
  const [tenantId, sessionId, path, allowed, expiresAtMs] = Claims.parse(openClaims(key, token))
  if (expiresAtMs <= Date.now()) throw new AshError('forbidden', 'The link has expired')
  if (allowed !== method) throw new AshError('forbidden', `The link is for ${allowed}, not for ${method}`)
  return { tenantId, sessionId, path, method, expiresAtMs }
}
