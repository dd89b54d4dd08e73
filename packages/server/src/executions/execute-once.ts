import { randomUUID } from 'node:crypto'
import { type ExecuteOnce, type Language, toOnce } from '@ash-ai/shared'
import { schedule } from '../sandboxes/schedule.ts'
import { insertWithUid, newRow } from '../sessions/session-create.ts'
import { planSession, type SessionPlan } from '../sessions/session-plan.ts'
import { fenceOf } from '../sessions/session-queries.ts'
import {
  acceptOnce,
  type Caller,
  newExecution,
  type Once,
  runSessionOf,
  startJob,
} from './accept-execution.ts'
import { insertExecution } from './execution-queries.ts'
import type { AcceptedExecution, ExecutionDeps } from './executions.ts'
import { eventText, planRun } from './run-plan.ts'

/** Accepts code together with a session that exists for this one run. */
export function acceptSingle(
  deps: ExecutionDeps,
  caller: Caller,
  request: ExecuteOnce,
): Promise<AcceptedExecution> {
  const event = eventText(request)
  return acceptOnce(deps, caller, { place: '', request, event }, (once) =>
    acceptNew(deps, caller, { request, event }, once),
  )
}

const TEMPLATES: Record<Language, string> = { python: 'python', javascript: 'node', shell: 'shell' }

/** Undefined where somebody else was quicker with the same key. */
async function acceptNew(
  deps: ExecutionDeps,
  caller: Caller,
  { request, event }: { request: ExecuteOnce; event: string | undefined },
  once: Once | undefined,
): Promise<AcceptedExecution | undefined> {
  await deps.assertSandboxing()
  const { env, packages, limits, network, provider, template, ...run } = toOnce(request)
  const sessionPlan = await planSession(deps, caller.tenantId, {
    mode: 'ephemeral',
    template: template ?? TEMPLATES[run.language ?? 'python'],
    ...(packages && { packages }),
    ...(limits && { limits }),
    ...(network && { network }),
    ...(provider !== undefined && { provider }),
    ...(env && { env }),
  })
  noteSchedule(deps, sessionPlan)
  const session = newRow(deps, sessionPlan, randomUUID(), 'active')
  const plan = planRun(run, runSessionOf(session), event)
  const row = newExecution(deps, session, plan, once)
  const log = await deps.logs.get(fenceOf(session))
  const parts = { row, session, input: plan.input, log, ownsSession: true }
  return startJob(deps, parts, caller, async () => {
    try {
      await insertWithUid(deps, session, async (transaction) => {
        if (!(await insertExecution(transaction, row))) throw new KeyTaken()
      })
      return true
    } catch (error) {
      if (error instanceof KeyTaken) return false
      throw error
    }
  })
}

function noteSchedule(
  { spares, metrics }: ExecutionDeps,
  { spares: { kind }, blueprint, limits }: SessionPlan,
): void {
  const { path } = schedule({ mode: 'ephemeral', spares: spares.count({ kind, blueprint, limits }) })
  metrics.schedules.inc({ path })
}

/** Takes the session back with it. */
class KeyTaken extends Error {}
