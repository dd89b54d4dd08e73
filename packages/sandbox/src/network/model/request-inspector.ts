import { isUtf8 } from 'node:buffer'
import type { RemoteFetch } from './remote-fetch.ts'
import { collectFacts } from './request-facts.ts'
import { isObject, isRegion } from './token-usage.ts'

/** A model that may work on the request, and the most it may write. */
interface Attempt {
  model: string
  maxTokens: number
}

/** What the proxy has to know about a Messages request before it leaves. */
export interface InspectedRequest extends Attempt {
  isStream: boolean
  /** The first is the model asked for; then those the provider may fall back to or consult. */
  attempts: Attempt[]
  /** Prompt tokens, guessed from the size: see `request-facts.ts`. */
  inputEstimate: number
  /** How long the prompt may be cached for, which sets the dearest rate it can cost. */
  cacheWrite: 'none' | '5m' | '1h'
  isFast: boolean
  isRegional: boolean
  remoteFetches: RemoteFetch[]
}

export interface MalformedRequest {
  malformed: string
}

const MAX_MODEL_CHARS = 256
const [QUOTE, COLON, BACKSLASH] = [0x22, 0x3a, 0x5c]

/**
 * Reads a request body. The proxy forwards the original bytes, so anything that another parser could read
 * differently is malformed here: a check of one reading would not bind the other.
 * `count_tokens` takes the same body without `max_tokens`.
 */
export function inspectRequest(
  body: Buffer,
  call: 'messages' | 'count_tokens',
): InspectedRequest | MalformedRequest {
  if (!isUtf8(body)) return { malformed: 'the body is not UTF-8' }
  const request = parse(body)
  if (!isObject(request)) return { malformed: 'the body is not a JSON object' }
  const { model, max_tokens, stream, speed, inference_geo } = request
  if (typeof model !== 'string' || model === '' || model.length > MAX_MODEL_CHARS) {
    return { malformed: 'model: must be the name of a model' }
  }
  const maxTokens = call === 'count_tokens' ? 0 : max_tokens
  if (!isCount(maxTokens)) return { malformed: 'max_tokens: must be a whole number of at least 0' }
  const facts = collectFacts(request, body.length)
  if (facts.keys !== countKeys(body)) return { malformed: 'a key occurs twice in the same object' }
  return {
    model,
    maxTokens,
    isStream: stream === true,
    attempts: [{ model, maxTokens }, ...otherAttempts(request, maxTokens)],
    inputEstimate: facts.inputEstimate,
    cacheWrite: facts.cacheWrite,
    isFast: speed === 'fast' || fallbacksOf(request).some((fallback) => fallback.speed === 'fast'),
    isRegional: typeof inference_geo === 'string' && isRegion(inference_geo),
    remoteFetches: facts.remoteFetches,
  }
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString())
  } catch {
    return undefined
  }
}

/** Models the provider may run besides: `fallbacks` after a refusal, and an advisor called as a tool. */
function otherAttempts(request: Record<string, unknown>, maxTokens: number): Attempt[] {
  const tools = Array.isArray(request.tools) ? request.tools.filter(isObject) : []
  const advisors = tools.filter(({ type }) => typeof type === 'string' && type.startsWith('advisor_'))
  return [...fallbacksOf(request), ...advisors]
    .filter((attempt) => typeof attempt.model === 'string')
    .map((attempt) => ({
      model: String(attempt.model),
      maxTokens: isCount(attempt.max_tokens) ? attempt.max_tokens : maxTokens,
    }))
}

function fallbacksOf(request: Record<string, unknown>): Record<string, unknown>[] {
  return Array.isArray(request.fallbacks) ? request.fallbacks.filter(isObject) : []
}

const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0

/** Keys in valid JSON text, repeated ones included: each has the only colon outside of strings. */
function countKeys(json: Buffer): number {
  const end = json.length
  let keys = 0
  for (let at = 0; at < end; at++) {
    let byte = json[at]
    if (byte === COLON) keys++
    if (byte !== QUOTE) continue
    // Two loops, one in strings and one outside, take half the time of one that knows where it is.
    for (at++; at < end; at++) {
      byte = json[at]
      if (byte === QUOTE) break
      if (byte === BACKSLASH) at++
    }
  }
  return keys
}
