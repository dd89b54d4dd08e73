import type { FastifyInstance } from 'fastify'
import { collectDefaultMetrics, Registry } from 'prom-client'
import { Histogram } from './histogram.ts'

/** What /metrics shows. Other parts of the server add their own to `registry`. */
export interface Metrics {
  registry: Registry
  requestSeconds: Histogram<'method' | 'route' | 'status'>
}

const BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]

export function createMetrics(): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const requestSeconds = new Histogram({
    name: 'ash_http_request_duration_seconds',
    help: 'Time from a request until its last byte was sent',
    labelNames: ['method', 'route', 'status'],
    buckets: BUCKETS_SECONDS,
    registry,
  })
  return { registry, requestSeconds }
}

export function addMetrics(app: FastifyInstance, { registry, requestSeconds }: Metrics): void {
  app.addHook('onResponse', (request, reply, done) => {
    // The route, not the URL: ids and unknown paths would make a series each.
    const route = request.routeOptions.url ?? 'unknown'
    const series = requestSeconds.series(request.method, route, String(reply.statusCode))
    series.observe(reply.elapsedTime / 1000)
    done()
  })
  app.get(
    '/metrics',
    { schema: { tags: ['platform'], summary: 'Prometheus metrics' } },
    async (_request, reply) => reply.type(registry.contentType).send(await registry.metrics()),
  )
}
