import { ms, row, type Summary, summarize } from '../support/samples.ts'

export const yes = (isMet: boolean) => (isMet ? 'yes' : '**no**')

export const table = (head: string[], ...rows: string[]) => [
  row(...head),
  row(...head.map(() => '---')),
  ...rows,
]

/** A table of times, each line made by `timesLine`. */
export const timesTable = (...lines: string[]) =>
  table(['ms', 'n', 'p50', 'p95', 'p99', 'target', 'met'], ...lines)

interface Goal {
  text: string
  isMet: (summary: Summary) => boolean
}

export function timesLine(name: string, samples: number[], goal?: Goal): string {
  const summary = summarize(samples)
  const { n, p50, p95, p99 } = summary
  return row(name, n, ms(p50), ms(p95), ms(p99), goal?.text ?? '', goal ? yes(goal.isMet(summary)) : '')
}

/** So many milliseconds at p50, and perhaps at p99. */
export const within = (p50Ms: number, p99Ms?: number): Goal => ({
  text: p99Ms === undefined ? `p50 ≤ ${p50Ms}` : `p50 ≤ ${p50Ms}, p99 ≤ ${p99Ms}`,
  isMet: ({ p50, p99 }) => p50 <= p50Ms && (p99Ms === undefined || p99 <= p99Ms),
})

/** So many times what the floor takes at p50; the line says how many times it is. */
export function timesFloor(samples: number[], floor: number[], most: number): Goal {
  const ratio = summarize(samples).p50 / summarize(floor).p50
  return { text: `p50 ≤ ${most} × floor; is ${ratio.toFixed(2)} ×`, isMet: () => ratio <= most }
}
