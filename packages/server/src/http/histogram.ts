import type { Metric, Registry } from 'prom-client'

interface HistogramOptions<Label extends string> {
  name: string
  help: string
  /** Upper bounds in seconds, ascending. */
  buckets: readonly number[]
  labelNames: readonly Label[]
  registry: Registry
}

/**
 * A Prometheus histogram that costs a few comparisons to observe: prom-client's own sorts and joins the labels for
 * every value, and a turn has a dozen. Whoever observes keeps the series of its labels.
 */
export class Histogram<Label extends string> {
  readonly name: string
  readonly #options: HistogramOptions<Label>
  readonly #series = new Map<string, HistogramSeries>()

  constructor(options: HistogramOptions<Label>) {
    this.name = options.name
    this.#options = options
    // The registry asks for no more than a name and `get`.
    options.registry.registerMetric(this as unknown as Metric)
  }

  series(...labels: string[]): HistogramSeries {
    const key = labels.join('\0')
    const known = this.#series.get(key) ?? new HistogramSeries(labels, this.#options.buckets)
    this.#series.set(key, known)
    return known
  }

  /** What prom-client writes out. */
  async get() {
    const { name, help, labelNames } = this.#options
    const values = [...this.#series.values()].flatMap((series) => series.values(name, labelNames))
    return { name, help, type: 'histogram', aggregator: 'sum', values }
  }
}

export class HistogramSeries {
  readonly #labels: string[]
  readonly #bounds: readonly number[]
  /** How many were at most each bound but above the one before; the last is for those above all. */
  readonly #counts: number[]
  #sum = 0

  constructor(labels: string[], bounds: readonly number[]) {
    this.#labels = labels
    this.#bounds = bounds
    this.#counts = Array(bounds.length + 1).fill(0)
  }

  observe(seconds: number): void {
    let index = 0
    while (index < this.#bounds.length && seconds > (this.#bounds[index] ?? 0)) index++
    this.#counts[index] = (this.#counts[index] ?? 0) + 1
    this.#sum += seconds
  }

  values(name: string, labelNames: readonly string[]) {
    const labels = Object.fromEntries(labelNames.map((label, index) => [label, this.#labels[index] ?? '']))
    let total = 0
    const buckets = this.#counts.map((count, index) => {
      total += count
      const le = this.#bounds[index] ?? '+Inf'
      return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: total }
    })
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: this.#sum },
      { metricName: `${name}_count`, labels, value: total },
    ]
  }
}
