import type { Registry } from 'prom-client'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { cancelAll } from './end-execution.ts'
import { createExecutionMetrics } from './execution-metrics.ts'
import { type ExecutionDeps, Executions } from './executions.ts'

/** Sessions in which code can be run. The same object: what ends a session also ends what runs for it. */
export function withExecutions(
  sessions: SessionDeps,
  {
    registry,
    ...artifacts
  }: Pick<ExecutionDeps, 'artifactDays' | 'maxArtifactBytes'> & { registry: Registry },
): ExecutionDeps {
  const runs = new Executions()
  const runMetrics = createExecutionMetrics(registry, runs)
  const deps: ExecutionDeps = Object.assign(sessions, { runs, runMetrics, ...artifacts })
  deps.cancelRuns = (sessionId, reason) => cancelAll(deps, sessionId, reason)
  return deps
}
