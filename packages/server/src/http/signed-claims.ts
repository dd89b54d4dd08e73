import { createHmac, timingSafeEqual } from 'node:crypto'
import { AshError } from '@ash-ai/shared'

/** Any JSON and its HMAC-SHA256, for a URL. Each use has a key of its own, so that none is taken for another. */
export function signClaims(key: Buffer, claims: unknown): string {
  const body = Buffer.from(JSON.stringify(claims)).toString('base64url')
  return `${body}.${macOf(key, body).toString('base64url')}`
}

/** Throws, `forbidden` where nothing else is said, unless the token was signed with this key. */
export function openClaims(key: Buffer, token: string, refuse = refuseLink): unknown {
  const [body = '', given = '', ...rest] = token.split('.')
  const mac = Buffer.from(given, 'base64url')
  const wanted = macOf(key, body)
  if (rest.length > 0 || mac.length !== wanted.length || !timingSafeEqual(mac, wanted)) throw refuse()
  return JSON.parse(Buffer.from(body, 'base64url').toString())
}

const refuseLink = () => new AshError('forbidden', 'The link is not one of this server, or was changed')

const macOf = (key: Buffer, body: string) => createHmac('sha256', key).update(body).digest()
