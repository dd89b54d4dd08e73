/** One thing that is wrong with a registry, and where. */
export interface Fault {
  /** Within the registry. */
  file: string
  line: number
  column: number
  /** Such as `resources.memory`; empty where it is about the file itself. */
  field: string
  message: string
}

export function formatFault({ file, line, column, field, message }: Fault): string {
  return `${file}:${line}:${column} ${field === '' ? '' : `${field}: `}${message}`
}

/** By place, so that a list reads like the files do. */
export function sortFaults(faults: Fault[]): Fault[] {
  const order = (a: Fault, b: Fault) =>
    compare(a.file, b.file) || a.line - b.line || a.column - b.column || compare(a.field, b.field)
  return faults.toSorted(order)
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)

/** `; did you mean "memory"?`, or nothing where no known word is near. */
export function didYouMean(word: string, known: Iterable<string>): string {
  const far = Math.max(1, Math.floor(word.length / 3))
  const near = [...known]
    .map((candidate) => ({
      candidate,
      distance: distanceBetween(word.toLowerCase(), candidate.toLowerCase()),
    }))
    .filter(({ distance }) => distance <= far)
    .sort((a, b) => a.distance - b.distance)
  return near[0] ? `; did you mean "${near[0].candidate}"?` : ''
}

const MAX_WORD_CHARS = 100

/** How many letters must be put in, left out or replaced. */
function distanceBetween(from: string, to: string): number {
  if (from.length > MAX_WORD_CHARS || to.length > MAX_WORD_CHARS) return Number.POSITIVE_INFINITY
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let line = 1; line <= from.length; line++) {
    const next = [line]
    for (let column = 1; column <= to.length; column++) {
      const replaced = (row[column - 1] ?? 0) + (from[line - 1] === to[column - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1))
    }
    row = next
  }
  return row.at(-1) ?? 0
}
