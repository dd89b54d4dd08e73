/** Runs of system calls with consecutive numbers. */
export type SyscallTable = readonly { first: number; names: string }[]

/** Name → number. */
export function numbersOf(table: SyscallTable): Map<string, number> {
  return new Map(
    table.flatMap(({ first, names }) => wordsOf(names).map((name, index) => [name, first + index] as const)),
  )
}

/** The first and last number of each run. */
export function rangesOf(table: SyscallTable): { first: number; last: number }[] {
  return table.map(({ first, names }) => ({ first, last: first + wordsOf(names).length - 1 }))
}

export const wordsOf = (text: string): string[] => text.trim().split(/\s+/)
