import { isObject } from './token-usage.ts'

/** Something in a request that would make the model's provider connect to a third party for the agent. */
export type RemoteFetch =
  | { kind: 'url_source'; url: string }
  | { kind: 'mcp_server'; url: string }
  | { kind: 'web_search'; type: string; maxUses: number }
  | { kind: 'web_fetch'; type: string; maxUses: number; domains: string[] }
  /** Runs at the provider, and nobody here knows what it reaches. */
  | { kind: 'server_tool'; type: string }

/** What the sandbox may reach itself, at this moment: a session's policy can change while it runs. */
export interface FetchPolicy {
  isOpen(): boolean
  allows(host: string, port: number): boolean
}

export type FetchVerdict =
  | { isAllowed: true }
  /** `setting` is what would allow it, as `network-policy.ts` writes settings. */
  | { isAllowed: false; reason: string; setting: string }

/** Typed tools the client runs itself, or that work on the request alone. They reach nothing from the provider. */
const HARMLESS_TOOL =
  /^(custom|((bash|text_editor|computer|computer_toolset|browser_toolset|memory|tool_search_tool_(regex|bm25))(_\d{8})?)|mcp_toolset)$/
const WEB_SEARCH = /^web_search_\d{8}$/
const WEB_FETCH = /^web_fetch_\d{8}$/
/** How often a tool without `max_uses` is taken to be used. */
const DEFAULT_MAX_USES = 10
/**
 * A host that every URL parser reads alike. Backslashes, blanks, user names or bare Unicode are read in several
 * ways: a URL we take to mean an allowed host could lead the provider to another one.
 */
const PLAIN_URL = /^(https?):\/\/(?:([a-z0-9._-]+)|\[([0-9a-f:.]+)\])(?::(\d{1,5}))?(?=[/?#]|$)[!-[\]-~]*$/i
const PLAIN_DOMAIN = /^([a-z0-9-]+(?:\.[a-z0-9-]+)+)(\/[!-[\]-~]*)?$/i
/** Stands for all names below a domain. */
const ANY_SUBDOMAIN = 'any-name-at-all'

/** What a `tools` entry would fetch. Its type alone decides: an `input_schema` beside it may be ignored upstream. */
export function fetchOfTool(tool: unknown): RemoteFetch | undefined {
  const type = isObject(tool) ? (tool.type ?? 'custom') : typeof tool
  if (!isObject(tool) || typeof type !== 'string') return { kind: 'server_tool', type: String(type) }
  const uses = tool.max_uses
  const maxUses = typeof uses === 'number' && uses >= 0 ? Math.min(uses, 1000) : DEFAULT_MAX_USES
  if (HARMLESS_TOOL.test(type)) return undefined
  if (WEB_SEARCH.test(type)) return { kind: 'web_search', type, maxUses }
  if (WEB_FETCH.test(type))
    return { kind: 'web_fetch', type, maxUses, domains: strings(tool.allowed_domains) }
  return { kind: 'server_tool', type }
}

/** Lets through what the sandbox could have fetched itself. */
export function checkRemoteFetches(fetches: RemoteFetch[], policy: FetchPolicy): FetchVerdict {
  if (policy.isOpen()) return { isAllowed: true }
  for (const fetch of fetches) {
    const verdict = checkFetch(fetch, policy)
    if (!verdict.isAllowed) return verdict
  }
  return { isAllowed: true }
}

function checkFetch(fetch: RemoteFetch, policy: FetchPolicy): FetchVerdict {
  switch (fetch.kind) {
    case 'url_source':
      return checkUrl(fetch.url, 'an image or document by URL', policy)
    case 'mcp_server':
      return checkUrl(fetch.url, 'a remote MCP server', policy)
    case 'web_search':
      return needsOpen(`the tool ${fetch.type} searches the whole web`)
    case 'web_fetch':
      return checkDomains(fetch, policy)
    case 'server_tool':
      return needsOpen(`the tool type ${brief(fetch.type)} runs at the model provider`)
  }
}

function checkUrl(url: string, what: string, policy: FetchPolicy): FetchVerdict {
  const [, scheme = '', name, ipv6, port] = PLAIN_URL.exec(url) ?? []
  const host = (name ?? ipv6)?.toLowerCase().replace(/\.$/, '')
  if (host === undefined || host === '') {
    return needsOpen(`${what} (${brief(url)}) is no plain http or https URL that could be checked`)
  }
  const defaultPort = scheme.toLowerCase() === 'https' ? 443 : 80
  return checkHost(host, port === undefined ? defaultPort : Number(port), what, policy)
}

function checkHost(host: string, port: number, what: string, policy: FetchPolicy): FetchVerdict {
  if (policy.allows(host, port)) return { isAllowed: true }
  const name = host.includes(':') ? `[${host}]` : host
  return needsEntry(what, port === 443 || port === 80 ? name : `${name}:${port}`)
}

/** A domain stands for its subdomains too, so the policy has to allow both. */
function checkDomains(
  { type, domains }: { type: string; domains: string[] },
  policy: FetchPolicy,
): FetchVerdict {
  if (domains.length === 0) return needsOpen(`the tool ${type} without allowed_domains fetches any page`)
  for (const entry of domains) {
    const domain = PLAIN_DOMAIN.exec(entry)?.[1]?.toLowerCase()
    if (domain === undefined) return needsOpen(`the tool ${type} with the domain ${brief(entry)}`)
    const own = checkHost(domain, 443, `the tool ${type}`, policy)
    if (!own.isAllowed) return own
    if (!policy.allows(`${ANY_SUBDOMAIN}.${domain}`, 443)) {
      return needsEntry(`the tool ${type}, which includes subdomains,`, `*.${domain}`)
    }
  }
  return { isAllowed: true }
}

const needsEntry = (what: string, entry: string): FetchVerdict => ({
  isAllowed: false,
  setting: `network: ["${entry}"]`,
  reason: `${what} needs ${brief(entry)} in the network policy`,
})

const needsOpen = (reason: string): FetchVerdict => ({
  isAllowed: false,
  setting: 'network: "open"',
  reason: `${reason}, which needs the network policy "open"`,
})

/** An entry that is no text becomes one that no policy allows. */
const strings = (value: unknown): string[] =>
  Array.isArray(value) ? value.map((entry) => (typeof entry === 'string' ? entry : '')) : []

/** The agent's own words go into messages and logs only this far. */
const brief = (text: string): string => JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)
