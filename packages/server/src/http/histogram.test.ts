import { Registry } from 'prom-client'
import { expect, test } from 'vitest'
import { Histogram } from './histogram.ts'

test('is written as Prometheus expects it: buckets that add up, a sum and a count for each series', async () => {
  const registry = new Registry()
  const histogram = new Histogram({
    name: 'seconds',
    help: 'How long it took',
    buckets: [0.1, 1],
    labelNames: ['hop'],
    registry,
  })
  for (const seconds of [0.05, 0.1, 0.5, 3]) histogram.series('a').observe(seconds)
  histogram.series('b "quoted"').observe(0.25)
  expect(await registry.metrics()).toBe(
    `# HELP seconds How long it took
# TYPE seconds histogram
seconds_bucket{le="0.1",hop="a"} 2
seconds_bucket{le="1",hop="a"} 3
seconds_bucket{le="+Inf",hop="a"} 4
seconds_sum{hop="a"} 3.65
seconds_count{hop="a"} 4
seconds_bucket{le="0.1",hop="b \\"quoted\\""} 0
seconds_bucket{le="1",hop="b \\"quoted\\""} 1
seconds_bucket{le="+Inf",hop="b \\"quoted\\""} 1
seconds_sum{hop="b \\"quoted\\""} 0.25
seconds_count{hop="b \\"quoted\\""} 1
`,
  )
})
