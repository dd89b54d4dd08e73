import { createHmac, timingSafeEqual } from 'node:crypto'
import { AshError } from '@ash-ai/shared'
import { z } from 'zod'

/** What a link lets whoever has it do, and until when. */
export interface LinkClaims {
  tenantId: string
  sessionId: string
  path: string
  method: 'GET' | 'PUT'
  expiresAtMs: number
}

const Claims = z.tuple([z.string(), z.string(), z.string(), z.enum(['GET', 'PUT']), z.number()])

/** The claims and their HMAC-SHA256, for the path of a URL. */
export function signLink(key: Buffer, claims: LinkClaims): string {
  const { tenantId, sessionId, path, method, expiresAtMs } = claims
  const body = Buffer.from(JSON.stringify([tenantId, sessionId, path, method, expiresAtMs])).toString(
    'base64url',
  )
  return `${body}.${macOf(key, body).toString('base64url')}`
}

/** Throws forbidden unless this server made the token, for this method, and its time has not passed. */
export function openLink(key: Buffer, token: string, method: 'GET' | 'PUT'): LinkClaims {
  const [body = '', given = '', ...rest] = token.split('.')
  const mac = Buffer.from(given, 'base64url')
  const wanted = macOf(key, body)
  if (rest.length > 0 || mac.length !== wanted.length || !timingSafeEqual(mac, wanted))
    throw new AshError('forbidden', 'The link is not one of this server, or was changed')
  const [tenantId, sessionId, path, allowed, expiresAtMs] = Claims.parse(
    JSON.parse(Buffer.from(body, 'base64url').toString()),
  )
  if (expiresAtMs <= Date.now()) throw new AshError('forbidden', 'The link has expired')
  if (allowed !== method) throw new AshError('forbidden', `The link is for ${allowed}, not for ${method}`)
  return { tenantId, sessionId, path, method, expiresAtMs }
}

const macOf = (key: Buffer, body: string) => createHmac('sha256', key).update(body).digest()
