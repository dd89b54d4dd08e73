import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ExecuteOnce, type Language, STARTING_NAMES, toOnce } from '@ash-ai/shared'
import type { Db } from '../db/open-db.ts'
import { schedule } from '../sandboxes/schedule.ts'
import type { SpareInterpreter } from '../sandboxes/spare.ts'
import { insertClaimed, insertWithUid, newRow } from '../sessions/session-create.ts'
import { planSession, type SessionPlan } from '../sessions/session-plan.ts'
import { fenceOf } from '../sessions/session-queries.ts'
import { acceptOnce, type Caller, newExecution, type Once, startJob } from './accept-execution.ts'
import { insertExecution } from './execution-queries.ts'
import type { AcceptedExecution, ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { eventText, planRun, type RunPlan } from './run-plan.ts'

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

const SHORT_RUN_MS = 200

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
  const plan = planRun(run, { mode: 'ephemeral', ...sessionPlan.run }, event)
  const spare = claimSpare(deps, sessionPlan, plan)
  let accepted: AcceptedExecution | undefined
  try {
    accepted = await store(deps, caller, { sessionPlan, plan, spare }, once)
    return accepted
  } finally {
    if (!accepted && spare) deps.runs.track(deps.spares.discard(spare))
    void refillAfter(deps, sessionPlan, accepted?.job)
  }
}

/** Not beside a short run, which would wait for the start of its successor's interpreter. */
async function refillAfter(
  { spares }: ExecutionDeps,
  plan: SessionPlan,
  job: Job | undefined,
): Promise<void> {
  const late = sleep(SHORT_RUN_MS, undefined, { ref: false })
  await Promise.race([job?.ended.catch(() => {}), late])
  setImmediate(() => spares.noteUse(plan.spares.kind, plan.spares.warm))
}

interface Planned {
  sessionPlan: SessionPlan
  plan: RunPlan
  spare: SpareInterpreter | undefined
}

/** Session and execution come to be together. Undefined where the execution is there already. */
async function store(
  deps: ExecutionDeps,
  caller: Caller,
  { sessionPlan, plan, spare }: Planned,
  once: Once | undefined,
): Promise<AcceptedExecution | undefined> {
  const run = { ...sessionPlan.run, isSingle: true }
  const session = newRow(deps, { ...sessionPlan, run }, spare?.sessionId ?? randomUUID(), 'active')
  const row = newExecution(deps, session, plan, once)
  const log = await deps.logs.get(fenceOf(session))
  const beginsBy = () => spare && ('warm' as const)
  const parts = { row, session, input: plan.input, log, ownsSession: true, spare, beginsBy }
  const insertRow = async (transaction: Db) => {
    if (!(await insertExecution(transaction, row))) throw new KeyTaken()
  }
  return startJob(deps, parts, caller, async () => {
    try {
      if (spare) await insertClaimed(deps, Object.assign(session, { host_uid: spare.uid }), insertRow)
      else await insertWithUid(deps, session, insertRow)
      return true
    } catch (error) {
      if (error instanceof KeyTaken) return false
      throw error
    }
  })
}

/** An interpreter that waits for such a run. What goes out, or changes how an interpreter starts, needs more than that. */
function claimSpare(
  { spares, metrics }: ExecutionDeps,
  { spares: { kind }, blueprint, limits, settings, env }: SessionPlan,
  { what: { language } }: RunPlan,
): SpareInterpreter | undefined {
  const wanted = { kind, blueprint, limits }
  const isAlone = (settings.network ?? 'none') === 'none'
  const startsAlike = !Object.keys(env).some((name) => STARTING_NAMES.test(name))
  const { path } = schedule({
    mode: 'ephemeral',
    spares: isAlone && startsAlike ? spares.count(wanted, language) : 0,
  })
  metrics.schedules.inc({ path })
  return path === 'warm' ? spares.claimInterpreter(wanted, language) : undefined
}

/** Takes the session back with it. */
class KeyTaken extends Error {}
