import type { IncomingMessage } from 'node:http'
import { isAshError } from '@ash-ai/shared'
import { type AuthOptions, findTenant } from '../http/auth.ts'
import { type PreviewTarget, parsePreviewHost } from './preview-address.ts'
import { openPreview, type PreviewClaims } from './preview-links.ts'
import { needsLink, PreviewRefusal } from './preview-refusal.ts'

/** In the query of a link. */
export const TOKEN_PARAM = 'ash_token'
/** The prefix has browsers refuse it from any other host; they take it over https only. */
const COOKIE = 'ash_preview'
const SECURE_COOKIE = `__Host-${COOKIE}`
export const isOwnCookie = (name: string) => name === COOKIE || name === SECURE_COOKIE

export interface AccessDeps extends Pick<AuthOptions, 'db' | 'apiKey'> {
  linkKey: Buffer
  base: URL
}

/** Who asks, and what for. */
export interface Admission {
  tenantId: string
  mayWake: boolean
  /** As it goes inside: without the token. */
  path: string
  /** The Authorization header is a key of Ash, which nothing inside may see. */
  hasKey: boolean
  /** Sent instead of the preview: a browser keeps the token as a cookie, not in its address. */
  cookie?: string
}

/** Throws a refusal where the request carries neither a link, nor its cookie, nor a key. */
export async function admit(
  deps: AccessDeps,
  request: IncomingMessage,
  target: PreviewTarget,
): Promise<Admission> {
  const { path, token } = takeToken(request.url ?? '')
  const key = /^Bearer +([\x21-\x7e]{1,1024}) *$/i.exec(request.headers.authorization ?? '')?.[1]
  const keyTenant = key === undefined ? undefined : await findTenant(deps, key)
  const hasKey = keyTenant !== undefined
  if (token !== undefined) {
    const claims = openPreview(deps.linkKey, token, target)
    const cookie = cookieOf(request, token, claims)
    return { ...claims, path, hasKey, ...(isPlainRead(request) && { cookie }) }
  }
  if (keyTenant !== undefined) return { tenantId: keyTenant, mayWake: false, path, hasKey }
  const claims = claimsOfCookies(deps, request, target)
  if (!claims) throw needsLink()
  assertOwnPage(deps.base, request, target)
  return { ...claims, path, hasKey }
}

/** Takes the token out and leaves everything else byte for byte. */
function takeToken(url: string): { path: string; token: string | undefined } {
  if (!url.startsWith('/')) throw new PreviewRefusal(400, 'validation_failed', 'Not a path', 'Send a path.')
  const [path = '', query] = url.split(/\?(.*)/s, 2)
  const parts = query?.split('&') ?? []
  const tokens = parts.filter((part) => part.startsWith(`${TOKEN_PARAM}=`))
  const rest = parts.filter((part) => !tokens.includes(part)).join('&')
  const token = tokens[0]?.slice(TOKEN_PARAM.length + 1)
  return { path: token === undefined ? url : path + (rest && `?${rest}`), token }
}

const isPlainRead = ({ method, headers }: IncomingMessage) =>
  (method === 'GET' || method === 'HEAD') && headers.upgrade === undefined

/** Of any that opens: a page of another preview may have set one of the same name. */
function claimsOfCookies(
  { linkKey }: AccessDeps,
  { headers }: IncomingMessage,
  target: PreviewTarget,
): PreviewClaims | undefined {
  for (const pair of (headers.cookie ?? '').split(/; */)) {
    const [name = '', token = ''] = pair.split('=', 2)
    if (!isOwnCookie(name)) continue
    try {
      return openPreview(linkKey, token, target)
    } catch (error) {
      if (!isAshError(error, 'forbidden')) throw error
    }
  }
}

function cookieOf(request: IncomingMessage, token: string, { expiresAtMs }: PreviewClaims): string {
  const seconds = Math.max(1, Math.floor((expiresAtMs - Date.now()) / 1000))
  const common = `Path=/; HttpOnly; SameSite=Lax; Max-Age=${seconds}`
  return schemeOf(request) === 'https'
    ? `${SECURE_COOKIE}=${token}; ${common}; Secure`
    : `${COOKIE}=${token}; ${common}`
}

/** As the client sees it, perhaps through a proxy that speaks https for this server. */
export const schemeOf = ({ headers }: IncomingMessage) =>
  String(headers['x-forwarded-proto'] ?? '').split(',', 1)[0] === 'https' ? 'https' : 'http'

/**
 * A browser sends the cookie also with what other pages ask for. Links may be followed from anywhere; everything
 * else has to come from a preview of the same session.
 */
function assertOwnPage(base: URL, { headers, method }: IncomingMessage, target: PreviewTarget): void {
  const { origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode } = headers
  if (site === 'same-origin' || site === 'none') return
  if (mode === 'navigate' && method === 'GET') return
  if (origin === undefined && site === undefined) return
  if (parsePreviewHost(base, URL.parse(origin ?? '')?.host)?.sessionId === target.sessionId) return
  throw new PreviewRefusal(403, 'forbidden', 'Another page asked for this', 'Open the preview itself.')
}
