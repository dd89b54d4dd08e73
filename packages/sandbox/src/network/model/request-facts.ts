import { fetchOfTool, type RemoteFetch } from './remote-fetch.ts'
import { isObject } from './token-usage.ts'

/** What a walk over every value of a request finds. */
export interface RequestFacts {
  /** Keys of all objects together. */
  keys: number
  inputEstimate: number
  cacheWrite: 'none' | '5m' | '1h'
  remoteFetches: RemoteFetch[]
}

/**
 * Two bytes of JSON a token. English has four and source code about three, so ordinary requests are reserved
 * nearly twice over; text made to be dense can reach one, and then costs at most twice what was reserved.
 */
const BYTES_PER_TOKEN = 2
/** Instructions the provider adds for tools. */
const HIDDEN_TOKENS = 1000
/** The most an image costs, whatever its size in bytes. */
const IMAGE_TOKENS = 5000
/** A document given by URL or file id: its size is not known here. */
const UNSEEN_DOCUMENT_TOKENS = 200_000
/** The largest context window: longer prompts are refused by the API and cost nothing. */
const MAX_PROMPT_TOKENS = 1_000_000
/** Arguments of tool calls and JSON schemas are data to the provider: nothing in them is fetched. */
const TOOL_CALLS = new Set(['tool_use', 'server_tool_use', 'mcp_tool_use'])
const OPAQUE_FIELDS = new Set(['metadata', 'output_config', 'output_format'])

/**
 * Walks everything, not only the places known to hold sources and tools: they may be nested in tool results,
 * documents and compaction blocks, and new places come with new betas. Iterative, since the agent chooses the depth.
 */
export function collectFacts(request: Record<string, unknown>, bodyBytes: number): RequestFacts {
  const facts: RequestFacts = { keys: 0, inputEstimate: 0, cacheWrite: 'none', remoteFetches: [] }
  const seen = { textBytes: bodyBytes, images: 0, documents: 0 }
  collectTopLevel(request, facts)
  const open: { value: unknown; isOpaque: boolean }[] = [{ value: request, isOpaque: false }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, isOpaque } = next
    if (Array.isArray(value)) {
      for (const item of value) if (typeof item === 'object') open.push({ value: item, isOpaque })
    } else if (isObject(value)) {
      if (!isOpaque) collectObject(value, facts, seen)
      for (const key in value) {
        facts.keys++
        if (typeof value[key] !== 'object') continue
        open.push({ value: value[key], isOpaque: isOpaque || isOpaqueField(value, key, value === request) })
      }
    }
  }
  const text = Math.ceil(seen.textBytes / BYTES_PER_TOKEN) + HIDDEN_TOKENS
  const sources = seen.images * IMAGE_TOKENS + seen.documents * UNSEEN_DOCUMENT_TOKENS
  facts.inputEstimate = Math.min(text + sources, MAX_PROMPT_TOKENS)
  return facts
}

function isOpaqueField(object: Record<string, unknown>, key: string, isTopLevel: boolean): boolean {
  if (key === 'input_schema') return true
  if (isTopLevel) return OPAQUE_FIELDS.has(key)
  return key === 'input' && typeof object.type === 'string' && TOOL_CALLS.has(object.type)
}

function collectTopLevel(request: Record<string, unknown>, facts: RequestFacts): void {
  for (const tool of listOf(request.tools)) addTool(tool, facts)
  for (const server of listOf(request.mcp_servers)) {
    // Servers with a URL are found by the walk. Any other way to name one is new, so it counts as unknown.
    if (!isObject(server) || server.type !== 'url') {
      facts.remoteFetches.push({ kind: 'server_tool', type: 'mcp_servers' })
    }
  }
  // A conversation kept at the provider brings in content and tools that this request does not show.
  if (request.thread !== undefined && request.thread !== null) {
    facts.remoteFetches.push({ kind: 'server_tool', type: 'thread' })
  }
}

function collectObject(
  object: Record<string, unknown>,
  facts: RequestFacts,
  seen: { textBytes: number; images: number; documents: number },
): void {
  const { type, cache_control, source } = object
  if (isObject(cache_control) && facts.cacheWrite !== '1h') {
    facts.cacheWrite = cache_control.ttl === '1h' ? '1h' : '5m'
  }
  if (type === 'url') {
    const url = typeof object.url === 'string' ? object.url : ''
    const isServer = typeof object.name === 'string' // Sources have no name.
    facts.remoteFetches.push({ kind: isServer ? 'mcp_server' : 'url_source', url })
    if (!isServer) seen.documents++
  } else if (type === 'file') {
    seen.documents++
  } else if (type === 'base64' && typeof object.data === 'string' && isImage(object.media_type)) {
    seen.textBytes -= object.data.length
    seen.images++
  } else if (type === 'tool_definition') {
    addTool(object.definition, facts)
  } else if (type === 'image' && isObject(source) && source.type !== 'base64') {
    seen.images++
    seen.documents-- // The walk comes to the source next and takes it for a document.
  }
}

function addTool(tool: unknown, facts: RequestFacts): void {
  const fetch = fetchOfTool(tool)
  if (fetch !== undefined) facts.remoteFetches.push(fetch)
}

const listOf = (value: unknown): unknown[] =>
  Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]

const isImage = (mediaType: unknown): boolean =>
  typeof mediaType === 'string' && mediaType.startsWith('image/')
