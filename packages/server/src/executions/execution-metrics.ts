import { Counter, Gauge, type Registry } from 'prom-client'
import { Histogram, type HistogramSeries } from '../http/histogram.ts'

export interface ExecutionMetrics {
  executions: Counter<'status' | 'language' | 'path'>
  executionSeconds: HistogramSeries
}

export function createExecutionMetrics(
  registry: Registry,
  runs: { readonly waiting: number },
): ExecutionMetrics {
  const registers = [registry]
  new Gauge({
    name: 'ash_execution_queue',
    help: 'Executions that were accepted and do not run yet',
    registers,
    collect() {
      this.set(runs.waiting)
    },
  })
  return {
    executions: new Counter({
      name: 'ash_executions_total',
      help: 'Executions by how they ended, their language, and where they ran: reuse, warm, cold, none',
      labelNames: ['status', 'language', 'path'],
      registers,
    }),
    executionSeconds: new Histogram({
      name: 'ash_execution_seconds',
      help: 'From the accepted request to the durable end of its execution',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300, 3600],
      labelNames: [],
      registry,
    }).series(),
  }
}
