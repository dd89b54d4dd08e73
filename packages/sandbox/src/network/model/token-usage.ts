/** Tokens of one model, as the provider bills them. */
export interface ModelTokens {
  /** Empty when the response named none. */
  model: string
  inputTokens: number
  outputTokens: number
  /** Written to the cache, all lifetimes together; `cacheCreation1hTokens` of them for an hour. */
  cacheCreationTokens: number
  cacheCreation1hTokens: number
  cacheReadTokens: number
}

/** What one request cost in tokens. */
export interface Usage extends ModelTokens {
  /** Inferences of other models within the request (compaction, advisor): billed on top of the main one. */
  others: ModelTokens[]
  webSearches: number
  isFast: boolean
  /** Inference pinned to a region costs more. */
  isRegional: boolean
  /** The response came to its end and reported its usage. */
  isComplete: boolean
  /** Some number here is a guess, because the response broke off before it reported. */
  isEstimated: boolean
}

export const NO_USAGE: Readonly<Usage> = Object.freeze({
  model: '',
  inputTokens: 0,
  outputTokens: 0,
  cacheCreationTokens: 0,
  cacheCreation1hTokens: 0,
  cacheReadTokens: 0,
  others: [],
  webSearches: 0,
  isFast: false,
  isRegional: false,
  isComplete: false,
  isEstimated: false,
})

/** Sub-inferences whose tokens the API leaves out of the top-level counts. */
const BILLED_APART = new Set(['compaction', 'advisor_message'])
const MAX_OTHERS = 1000

/**
 * Lays a `usage` object of the Messages API over what was known before. In a stream the counts are
 * cumulative and a later event may leave out what an earlier one said, so absent fields keep their value.
 */
export function mergeUsage(known: Usage, reported: unknown): Usage {
  if (!isObject(reported)) return known
  const serverTools = isObject(reported.server_tool_use) ? reported.server_tool_use : {}
  return {
    ...known,
    ...mergeTokens(known, reported),
    others: Array.isArray(reported.iterations) ? otherTokens(reported.iterations, known.model) : known.others,
    webSearches: count(serverTools.web_search_requests) ?? known.webSearches,
    isFast: typeof reported.speed === 'string' ? reported.speed === 'fast' : known.isFast,
    isRegional:
      typeof reported.inference_geo === 'string' ? isRegion(reported.inference_geo) : known.isRegional,
  }
}

export const totalTokens = (tokens: ModelTokens): number => promptTokens(tokens) + tokens.outputTokens

export const promptTokens = (tokens: ModelTokens): number =>
  tokens.inputTokens + tokens.cacheCreationTokens + tokens.cacheReadTokens

/** `global` is the default and `not_available` what older models report. */
export const isRegion = (geo: string): boolean => !['', 'global', 'not_available'].includes(geo)

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function mergeTokens(known: ModelTokens, reported: Record<string, unknown>): ModelTokens {
  const split = isObject(reported.cache_creation) ? reported.cache_creation : {}
  const hour = count(split.ephemeral_1h_input_tokens) ?? known.cacheCreation1hTokens
  const written =
    count(reported.cache_creation_input_tokens) ??
    (isObject(reported.cache_creation) ? hour + (count(split.ephemeral_5m_input_tokens) ?? 0) : undefined) ??
    known.cacheCreationTokens
  return {
    model: known.model,
    inputTokens: count(reported.input_tokens) ?? known.inputTokens,
    outputTokens: count(reported.output_tokens) ?? known.outputTokens,
    cacheCreationTokens: written,
    cacheCreation1hTokens: Math.min(hour, written),
    cacheReadTokens: count(reported.cache_read_input_tokens) ?? known.cacheReadTokens,
  }
}

function otherTokens(iterations: unknown[], mainModel: string): ModelTokens[] {
  return iterations
    .filter(isObject)
    .filter(({ type }) => typeof type === 'string' && BILLED_APART.has(type))
    .slice(0, MAX_OTHERS)
    .map((iteration) => {
      const model = typeof iteration.model === 'string' ? iteration.model : mainModel
      return mergeTokens({ ...NO_USAGE, model }, iteration)
    })
}

/** A count of tokens, or nothing: what a gateway reports is not to be trusted to be a number. */
function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined
}
