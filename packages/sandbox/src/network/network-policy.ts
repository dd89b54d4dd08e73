import { isIP } from 'node:net'
import { AshError } from '@ash-ai/shared'

/** What a sandbox may reach. Entries are as `parsePolicy` writes them. */
export type NetworkPolicy = { mode: 'none' } | { mode: 'allowlist'; hosts: string[] } | { mode: 'open' }

/** A host and port as `parseAuthority` gives them: one spelling for each host, IPv6 without brackets. */
export interface Destination {
  host: string
  port: number
}

/** Why something is refused, and the setting that would allow it where there is one. */
export interface Objection {
  reason: string
  setting?: string | undefined
}

/**
 * `isNamed`: an entry is exactly this host, so it may be a private address. `isAnyProtocol`: not only TLS and HTTP
 * that name this host may be spoken, because an entry names the port or because everything is open.
 */
export type Decision =
  | { allowed: true; isNamed: boolean; isAnyProtocol: boolean }
  | ({ allowed: false } & Objection)

/** Ports of an entry that names none: HTTP and HTTPS. */
const DEFAULT_PORTS = [80, 443]
const MAX_HOSTS = 1_000
const LABEL = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/

/**
 * Reads a setting: `none`, `open`, or a list of `host`, `*.host` (any name below, not the host itself), `host:port`,
 * `*.host:port`, and IP addresses, with IPv6 in brackets.
 */
export function parsePolicy(value: 'none' | 'open' | string[]): NetworkPolicy {
  if (value === 'none' || value === 'open') return { mode: value }
  if (!Array.isArray(value))
    throw invalid(`network is "none", "open" or a list of hosts, not ${JSON.stringify(value)}`)
  if (value.length > MAX_HOSTS) throw invalid(`network lists ${value.length} hosts; ${MAX_HOSTS} are allowed`)
  return { mode: 'allowlist', hosts: [...new Set(value.map(parseEntry))] }
}

/** Whether the policy admits a destination by name. The addresses it leads to are judged once they are known. */
export function decide(policy: NetworkPolicy, destination: Destination): Decision {
  const setting = settingFor(destination)
  if (policy.mode === 'none') return { allowed: false, reason: 'the network policy is "none"', setting }
  if (policy.mode === 'open') return { allowed: true, isNamed: false, isAnyProtocol: true }
  const { withPort, withoutPort } = entriesFor(destination)
  const named = (entries: string[]) => policy.hosts.some((entry) => entries.includes(entry))
  const isAnyProtocol = named(withPort)
  if (!isAnyProtocol && !named(withoutPort))
    return { allowed: false, reason: 'no entry of the network policy allows it', setting }
  return {
    allowed: true,
    isNamed: named([...withPort.slice(0, 1), ...withoutPort.slice(0, 1)]),
    isAnyProtocol,
  }
}

/** The setting that names a destination, and its port where that is needed. */
export function settingFor(destination: Destination, { isPortNamed = false } = {}): string {
  const isDefaultPort = DEFAULT_PORTS.includes(destination.port) && !isPortNamed
  return `network: ["${isDefaultPort ? inBrackets(destination.host) : formatAuthority(destination)}"]`
}

/**
 * Reads `host:port` as CONNECT, a URL, a Host header or a policy has it. Every spelling of a host becomes the same
 * one: case, a final dot, international names, and IPv4 addresses in octal, hexadecimal or as a single number.
 */
export function parseAuthority(authority: string, defaultPort?: number): Destination | undefined {
  const [, name, digits] = /^(\[.*\]|[^:]*)(?::(\d{1,5}))?$/s.exec(authority) ?? []
  const host = name && normaliseHost(name)
  const port = digits === undefined ? defaultPort : Number(digits)
  const isPort = port !== undefined && port <= 65_535 && (port > 0 || digits === undefined)
  return host && isPort ? { host, port } : undefined
}

/** `host:port` as a URL has it. */
export function formatAuthority({ host, port }: Destination): string {
  return `${inBrackets(host)}:${port}`
}

/** One spelling for each host, by the rules that browsers and `fetch` follow; undefined where it is none. */
export function normaliseHost(name: string): string | undefined {
  // The URL parser would drop line breaks, decode escapes and take the rest for a user, port or path.
  if (!/^(\[[0-9a-f:.]+\]|[^\0-\x20\x7f:@/?#\\%[\]]+)$/i.test(name)) return undefined
  const hostname = URL.parse(`http://${name}/`)?.hostname.replace(/^\[|\]$|\.$/g, '')
  if (!hostname || hostname.length > 253) return undefined
  const isHost = isIP(hostname) !== 0 || hostname.split('.').every((label) => LABEL.test(label))
  return isHost ? hostname : undefined
}

function parseEntry(entry: string): string {
  const [, wildcard = '', rest = ''] = /^(\*\.)?(.*)$/s.exec(entry) ?? []
  const destination = parseAuthority(rest, 0)
  if (!destination || (wildcard && isIP(destination.host)))
    throw invalid(
      `network entry ${JSON.stringify(entry)} is not a host, *.host, host:port, *.host:port or IP address ` +
        '(IPv6 in brackets); it has no scheme and no path',
    )
  const { host, port } = destination
  return wildcard + (port === 0 ? inBrackets(host) : formatAuthority(destination))
}

/** Every entry that would match: the host itself first, then its parents as wildcards. */
function entriesFor({ host, port }: Destination): { withPort: string[]; withoutPort: string[] } {
  const labels = isIP(host) ? [] : host.split('.')
  const parents = labels.slice(1).map((_, index) => `*.${labels.slice(index + 1).join('.')}`)
  const names = [inBrackets(host), ...parents]
  return {
    withPort: names.map((name) => `${name}:${port}`),
    withoutPort: DEFAULT_PORTS.includes(port) ? names : [],
  }
}

function inBrackets(host: string): string {
  return isIP(host) === 6 ? `[${host}]` : host
}

function invalid(message: string): AshError {
  return new AshError('validation_failed', message)
}
