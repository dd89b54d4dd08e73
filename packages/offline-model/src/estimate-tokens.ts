const CHARACTERS_PER_TOKEN = 4

/** A rough size of what a model would be sent; only its order of magnitude means anything. */
export function estimateTokens(value: unknown): number {
  return Math.ceil(JSON.stringify(value ?? '').length / CHARACTERS_PER_TOKEN)
}
