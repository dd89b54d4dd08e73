import type { SandboxPool } from '@ash-ai/sandbox'
import { Counter, Gauge, type Registry } from 'prom-client'
import { Histogram, type HistogramSeries } from '../http/histogram.ts'
import { TURN_HOPS, type TurnHop } from './turn-timing.ts'

export interface SessionMetrics {
  turns: Counter<'outcome'>
  turnSeconds: HistogramSeries
  turnHopSeconds: Record<TurnHop, HistogramSeries>
  sandboxStarts: Counter<'outcome'>
  creates: Counter<'path'>
  schedules: Counter<'path'>
  resumes: Counter<'path'>
  evictions: Counter<'reason'>
  checkpointSeconds: HistogramSeries
  checkpointFailures: Counter
  sandboxStartSeconds: HistogramSeries
}

export function createSessionMetrics(
  registry: Registry,
  pool: Pick<SandboxPool, 'live' | 'max' | 'counts'>,
): SessionMetrics {
  const registers = [registry]
  new Gauge({
    name: 'ash_sandboxes_live',
    help: 'Sandboxes that are running or starting',
    registers,
    collect() {
      this.set(pool.live)
    },
  })
  new Gauge({
    name: 'ash_pool_sandboxes',
    help: 'Sandboxes by state: warming, warm (spare), waiting, running',
    labelNames: ['state'],
    registers,
    collect() {
      for (const [state, count] of Object.entries(pool.counts())) this.set({ state }, count)
    },
  })
  new Gauge({
    name: 'ash_sandboxes_max',
    help: 'Most sandboxes that may run at once (ASH_MAX_SANDBOXES)',
    registers,
    collect() {
      this.set(pool.max)
    },
  })
  return {
    turns: new Counter({
      name: 'ash_turns_total',
      help: 'Turns by how they ended',
      labelNames: ['outcome'],
      registers,
    }),
    turnSeconds: new Histogram({
      name: 'ash_turn_seconds',
      help: 'From the accepted message to the durable end of its turn',
      buckets: [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800],
      labelNames: [],
      registry,
    }).series(),
    turnHopSeconds: hopHistograms(registry),
    sandboxStarts: new Counter({
      name: 'ash_sandbox_starts_total',
      help: 'Sandbox starts by how they ended',
      labelNames: ['outcome'],
      registers,
    }),
    creates: new Counter({
      name: 'ash_session_creates_total',
      help: 'New sessions, by whether a spare sandbox was ready (warm) or one had to be started (cold)',
      labelNames: ['path'],
      registers,
    }),
    schedules: new Counter({
      name: 'ash_schedule_total',
      help: 'Where work was sent: to an open session (reuse), a spare sandbox (warm) or a new one (cold)',
      labelNames: ['path'],
      registers,
    }),
    resumes: new Counter({
      name: 'ash_resumes_total',
      help: 'Sessions that became active again, by how: warm, cold_local, cold_remote',
      labelNames: ['path'],
      registers,
    }),
    evictions: new Counter({
      name: 'ash_evictions_total',
      help: 'Sandboxes given up because nothing was done (idle), room was needed (capacity) or they were old (lifetime)',
      labelNames: ['reason'],
      registers,
    }),
    checkpointSeconds: new Histogram({
      name: 'ash_checkpoint_seconds',
      help: 'From the freeze of a sandbox to a checkpoint that is durable',
      buckets: [0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30],
      labelNames: [],
      registry,
    }).series(),
    checkpointFailures: new Counter({
      name: 'ash_checkpoint_failures_total',
      help: 'Checkpoints that could not be saved',
      registers,
    }),
    sandboxStartSeconds: new Histogram({
      name: 'ash_sandbox_start_seconds',
      help: 'From the request for a sandbox to a bridge that answers',
      buckets: [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 20],
      labelNames: [],
      registry,
    }).series(),
  }
}

/** One child for each hop, looked up once: every turn passes all of them. */
function hopHistograms(registry: Registry): SessionMetrics['turnHopSeconds'] {
  const histogram = new Histogram({
    name: 'ash_turn_hop_seconds',
    help: 'From the request that brought a message to each step of its turn',
    labelNames: ['hop'],
    buckets: [0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 300],
    registry,
  })
  const series = TURN_HOPS.map((hop): [TurnHop, HistogramSeries] => [hop, histogram.series(hop)])
  return Object.fromEntries(series) as Record<TurnHop, HistogramSeries>
}
