import { AshError } from '@ash-ai/shared'
import { z } from 'zod'
import { openClaims, signClaims } from '../http/signed-claims.ts'
import type { PreviewTarget } from './preview-address.ts'

/** What a link lets whoever has it do, and until when. */
export interface PreviewClaims extends PreviewTarget {
  tenantId: string
  /** Also when that means to wake the session. */
  mayWake: boolean
  expiresAtMs: number
}

const Claims = z.tuple([z.string(), z.string(), z.number(), z.boolean(), z.number()])

export function signPreview(key: Buffer, claims: PreviewClaims): string {
  const { tenantId, sessionId, port, mayWake, expiresAtMs } = claims
  return signClaims(key, [tenantId, sessionId, port, mayWake, expiresAtMs])
}

/** Throws `forbidden` unless this server made the token, for this port of this session, and its time has not passed. */
export function openPreview(key: Buffer, token: string, target: PreviewTarget): PreviewClaims {
  const [tenantId, sessionId, port, mayWake, expiresAtMs] = Claims.parse(openClaims(key, token))
  if (sessionId !== target.sessionId || port !== target.port)
    throw new AshError('forbidden', 'The link is for another preview')
  if (expiresAtMs <= Date.now()) throw new AshError('forbidden', 'The link has expired')
  return { tenantId, sessionId, port, mayWake, expiresAtMs }
}
