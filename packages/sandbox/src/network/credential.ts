import type { CredentialScheme } from '@ash-ai/shared'
import { type Destination, formatAuthority, parseAuthority } from './network-policy.ts'

/** A secret, how it is sent and to whom it may go. Hosts are as `formatCredentialHost` writes them. */
export interface Credential {
  hosts: string[]
  scheme: CredentialScheme
  secret: string
}

/** The credential that a sandbox may use under this name now; asked for each request, so that changes apply. */
export type FindCredential = (name: string) => Promise<Credential | undefined>

export interface CredentialHost extends Destination {
  isTls: boolean
}

const SUFFIX = '.credentials.ash'

/** Whether a name is reserved for credentials; such names are never looked up. */
export function isCredentialName(host: string): boolean {
  return `.${host}`.endsWith(SUFFIX)
}

/** The part that names the credential; undefined where it could not be one. */
export function credentialNameOf(host: string): string | undefined {
  return /^([a-z0-9-]{1,40})\.credentials\.ash$/.exec(host)?.[1]
}

/** Reads `host`, `host:port` (both https) or `http://host:port`. Every spelling of a host becomes the same one. */
export function parseCredentialHost(text: string): CredentialHost | undefined {
  const [, plain, authority = ''] = /^(http:\/\/(?=.*:\d+$))?(.*)$/s.exec(text) ?? []
  const destination = parseAuthority(authority, plain === undefined ? 443 : undefined)
  if (!destination || isCredentialName(destination.host)) return undefined
  return { ...destination, isTls: plain === undefined }
}

/** The one spelling of a host that is stored and compared. */
export function formatCredentialHost({ isTls, ...destination }: CredentialHost): string {
  const authority = formatAuthority(destination)
  return isTls ? authority.replace(/:443$/, '') : `http://${authority}`
}

export interface CredentialedRequest {
  path: string
  headers: Record<string, string[]>
}

/** A request with the credential added, and without whatever else would say who is asking. */
export function authenticate(
  { scheme, secret }: Pick<Credential, 'scheme' | 'secret'>,
  { path, headers }: CredentialedRequest,
): CredentialedRequest {
  const added = authenticatingHeader(scheme, secret)
  const clashing = ['authorization', 'cookie', added?.name.toLowerCase()]
  // Servers that make variables of headers take `_` and `-` for the same.
  const isKept = (name: string) => !clashing.includes(name.toLowerCase().replaceAll('_', '-'))
  const kept = Object.fromEntries(Object.entries(headers).filter(([name]) => isKept(name)))
  return {
    path: scheme.type === 'query' ? withParameter(path, scheme.name, secret) : path,
    headers: added ? { ...kept, [added.name]: [added.value] } : kept,
  }
}

function authenticatingHeader(
  scheme: CredentialScheme,
  secret: string,
): { name: string; value: string } | undefined {
  switch (scheme.type) {
    case 'bearer':
      return { name: 'authorization', value: `Bearer ${secret}` }
    case 'header':
      return { name: scheme.name, value: secret }
    case 'basic': {
      const pair = Buffer.from(`${scheme.username}:${secret}`).toString('base64')
      return { name: 'authorization', value: `Basic ${pair}` }
    }
    case 'query':
      return undefined
  }
}

/** Parameters of the same name are dropped, in whatever way they are written. */
function withParameter(path: string, name: string, value: string): string {
  const [, place = '', query = ''] = /^([^?]*)\??(.*)$/s.exec(path) ?? []
  const kept = query.split('&').filter((part) => part !== '' && parameterName(part) !== name)
  const added = `${encodeURIComponent(name)}=${encodeURIComponent(value)}`
  return `${place}?${[...kept, added].join('&')}`
}

function parameterName(part: string): string | undefined {
  return [...new URLSearchParams(part).keys()][0]
}
