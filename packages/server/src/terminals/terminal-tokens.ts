import { createHmac, timingSafeEqual } from 'node:crypto'
import { AshError } from '@ash-ai/shared'
import { z } from 'zod'

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
  const body = Buffer.from(JSON.stringify([tenantId, sessionId, expiresAtMs])).toString('base64url')
  return { token: `${body}.${macOf(key, body)}`, expiresAt: new Date(expiresAtMs).toISOString() }
}

/** The tenant of the token. Throws unless this server made it, for that session, less than a minute ago. */
export function openToken(key: Buffer, token: string, sessionId: string): string {
  const [body = '', mac = '', ...rest] = token.split('.')
  if (rest.length > 0 || !isSame(mac, macOf(key, body))) throw refused('is not one of this server')
  const claims: unknown = JSON.parse(Buffer.from(body, 'base64url').toString())
  const [tenantId, allowedId, expiresAtMs] = Claims.parse(claims)
  if (expiresAtMs <= Date.now()) throw refused('has expired')
  if (allowedId !== sessionId) throw refused('is for another session')
  return tenantId
}

const refused = (why: string) =>
  new AshError('unauthorized', `The token ${why}. Ask for one with POST /api/sessions/<id>/terminal/tokens.`)

const macOf = (key: Buffer, body: string) => createHmac('sha256', key).update(body).digest('base64url')

function isSame(given: string, wanted: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(wanted)]
  return one.length === other.length && timingSafeEqual(one, other)
}
