/** Longest input of a tool that somebody can be asked about, as JSON. */
export const MAX_TOOL_INPUT_CHARS = 256 * 1024
export const MAX_TOOL_INPUT_DEPTH = 64

/** Bounded in length, and in depth: what nests too deeply can be parsed but not written again. */
export function isToolInput(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  return isShallow(value, MAX_TOOL_INPUT_DEPTH) && JSON.stringify(value).length <= MAX_TOOL_INPUT_CHARS
}

function isShallow(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  return levels > 0 && Object.values(value).every((part) => isShallow(part, levels - 1))
}
