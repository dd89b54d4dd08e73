import { CheckpointFault } from './checkpoint-fault.ts'

const MAX_PATTERNS = 1000
const MAX_PATTERN_BYTES = 1000
/** Comparisons of one checkpoint: hostile patterns cost a second, not more. */
const MAX_STEPS = 200_000_000

export interface IgnorePatterns {
  /** Whether an entry is left out; of what lies in a folder that is, nobody asks. */
  ignores(path: string, isFolder: boolean): boolean
}

interface Pattern {
  parts: string[]
  isNegated: boolean
  isFolderOnly: boolean
}

/**
 * Reads lines as git reads a `.gitignore`; the last that matches wins. Text past the limits is not applied at all:
 * half of a list could leave out what a later line keeps.
 */
export function parseIgnorePatterns(text: string): IgnorePatterns {
  const lines = text.split(/\r?\n/).map(trimEnd).filter(isPattern)
  const isTooMuch = lines.length > MAX_PATTERNS || lines.some((line) => line.length > MAX_PATTERN_BYTES)
  const patterns = isTooMuch ? [] : lines.map(parsePattern).reverse()
  const steps = { left: MAX_STEPS }
  return {
    ignores(path, isFolder) {
      if (patterns.length === 0) return false
      const parts = path.split('/')
      const match = patterns.find(
        (pattern) => (isFolder || !pattern.isFolderOnly) && matchParts(pattern.parts, parts, steps),
      )
      return match !== undefined && !match.isNegated
    },
  }
}

export const MAX_IGNORE_BYTES = MAX_PATTERNS * (MAX_PATTERN_BYTES + 2)

/** Spaces at the end do not count unless escaped. */
function trimEnd(line: string): string {
  let end = line.length
  while (end > 0 && line[end - 1] === ' ' && line[end - 2] !== '\\') end--
  return line.slice(0, end)
}

const isPattern = (line: string) => line !== '' && !line.startsWith('#')

function parsePattern(line: string): Pattern {
  const isNegated = line.startsWith('!')
  let body = isNegated ? line.slice(1) : line
  const isFolderOnly = body.endsWith('/')
  if (isFolderOnly) body = body.slice(0, -1)
  const isAnchored = body.includes('/')
  const parts = body.split('/').filter((part) => part !== '')
  const isAnywhere = !isAnchored && parts.length > 0
  return { parts: isAnywhere ? ['**', ...parts] : parts, isNegated, isFolderOnly }
}

interface Steps {
  left: number
}

/** `**` stands for any number of names. Going back to the last one only is enough, and keeps it from exploding. */
function matchParts(pattern: string[], names: string[], steps: Steps): boolean {
  let [at, name] = [0, 0]
  let [starAt, starName] = [-1, 0]
  while (name < names.length) {
    const part = pattern[at]
    if (part === '**') {
      // At the end it stands for everything below, not for the folder itself.
      if (at === pattern.length - 1) return true
      starAt = at++
      starName = name
    } else if (part !== undefined && matchName(part, names[name] ?? '', steps)) {
      at++
      name++
    } else if (starAt >= 0) {
      at = starAt + 1
      name = ++starName
    } else {
      return false
    }
  }
  return at === pattern.length && at > 0
}

function matchName(pattern: string, name: string, steps: Steps): boolean {
  let [at, index] = [0, 0]
  let [starAt, starIndex] = [-1, 0]
  while (index < name.length) {
    spend(steps, 1)
    const length = pattern[at] === '*' ? 0 : matchOne(pattern, at, name.charCodeAt(index), steps)
    if (pattern[at] === '*') {
      starAt = at++
      starIndex = index
    } else if (length > 0) {
      at += length
      index++
    } else if (starAt >= 0) {
      at = starAt + 1
      index = ++starIndex
    } else {
      return false
    }
  }
  while (pattern[at] === '*') at++
  return at === pattern.length
}

/** How many characters of the pattern stand for this one; 0 where they do not. */
function matchOne(pattern: string, at: number, code: number, steps: Steps): number {
  const char = pattern[at]
  if (char === undefined) return 0
  if (char === '?') return 1
  if (char === '[') return matchClass(pattern, at, code, steps)
  if (char === '\\' && at + 1 < pattern.length) return pattern.charCodeAt(at + 1) === code ? 2 : 0
  return char.charCodeAt(0) === code ? 1 : 0
}

/** `[abc]`, `[a-z]`, `[!a]`. Without its end, the bracket stands for itself. */
function matchClass(pattern: string, at: number, code: number, steps: Steps): number {
  const isNegated = pattern[at + 1] === '!' || pattern[at + 1] === '^'
  const start = at + (isNegated ? 2 : 1)
  const end = pattern.indexOf(']', start + 1)
  if (end < 0) return code === pattern.charCodeAt(at) ? 1 : 0
  spend(steps, end - start)
  let isIn = false
  for (let index = start; index < end; index++) {
    const from = pattern.charCodeAt(index)
    const isRange = pattern[index + 1] === '-' && index + 2 < end
    if (isRange) index += 2
    if (code >= from && code <= pattern.charCodeAt(index)) isIn = true
  }
  return isIn === isNegated ? 0 : end - at + 1
}

function spend(steps: Steps, count: number): void {
  steps.left -= count
  if (steps.left < 0) {
    throw new CheckpointFault(
      'checkpoint_failed',
      '".ashignore" takes too long to apply. Simplify its patterns.',
    )
  }
}
