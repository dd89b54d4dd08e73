import { AshError } from '@ash-ai/shared'
import { z } from 'zod'
import { openClaims, signClaims } from '../http/signed-claims.ts'

/** Long enough to connect, too short to be of use to whoever finds it in a log. */
const TOKEN_MS = 60_000

const Claims = z.tuple([z.string(), z.string(), z.number()])

/** Lets whoever has it into the terminals of one session, where a browser can send no key. */
export function signToken(
  key: Buffer,
  tenantId: string,
  sessionId: string,
): { token: string; expiresAt: string } {
  const expiresAtMs = Date.now() + TOKEN_MS
  const token = signClaims(key, [tenantId, sessionId, expiresAtMs])
  return { token, expiresAt: new Date(expiresAtMs).toISOString() }
}

/** The tenant of the token. Throws unless this server made it, for that session, less than a minute ago. */
export function openToken(key: Buffer, token: string, sessionId: string): string {
  const claims = openClaims(key, token, () => refused('is not one of this server'))
  const [tenantId, allowedId, expiresAtMs] = Claims.parse(claims)
  if (expiresAtMs <= Date.now()) throw refused('has expired')
  if (allowedId !== sessionId) throw refused('is for another session')
  return tenantId
}

const refused = (why: string) =>
  new AshError('unauthorized', `The token ${why}. Ask for one with POST /api/sessions/<id>/terminal/tokens.`)
