export interface Summary {
  n: number
  p50: number
  p95: number
  p99: number
}

export function summarize(values: number[]): Summary {
  const sorted = [...values].sort((a, b) => a - b)
  const at = (share: number) =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
  return { n: sorted.length, p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

export const ms = (value: number) => (value < 10 ? value.toFixed(2) : value.toFixed(1))

/** A row of a Markdown table. */
export const row = (...cells: (string | number)[]) => `| ${cells.join(' | ')} |`

export const summaryRow = (name: string, { n, p50, p95, p99 }: Summary, ratio: string) =>
  row(name, n, ms(p50), ms(p95), ms(p99), ratio)

/** Runs each in turn, so that a busy moment of the machine meets all of them. */
export async function interleave(rounds: number, runs: Record<string, () => Promise<number>>) {
  const samples = Object.fromEntries(Object.keys(runs).map((name) => [name, [] as number[]]))
  for (let round = 0; round < rounds; round++) {
    for (const [name, run] of Object.entries(runs)) samples[name]?.push(await run())
  }
  return Object.fromEntries(Object.entries(samples).map(([name, values]) => [name, summarize(values)]))
}
