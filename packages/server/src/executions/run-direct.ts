import { randomUUID } from 'node:crypto'
import { sessionDirs } from '@ash-ai/sandbox'
import { AshError } from '@ash-ai/shared'
import { needsInstall } from '../agents/agent-install.ts'
import { hasFolders } from '../checkpoints/session-files.ts'
import type { SpareInterpreter } from '../sandboxes/spare.ts'
import { acquireLayer } from '../sessions/agent-setup.ts'
import { blueprintOf } from '../sessions/blueprint-of.ts'
import { storedLimits } from '../sessions/effective-limits.ts'
import { getOpenSession, ownerOf } from '../sessions/open-session.ts'
import type { SessionRow } from '../sessions/session-queries.ts'
import { identityOf, poolUse, setupOf } from '../sessions/session-wake.ts'
import type { ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { runAttempt, type Taken } from './run-attempt.ts'

const NO_NETWORK = '"none"'

/**
 * Whether the run needs nothing but its interpreter, in a sandbox of its own: a bridge is for what goes out, and for
 * files that were there before.
 */
export async function runsDirect(deps: ExecutionDeps, { session, ownsSession, row }: Job): Promise<boolean> {
  const { mode, agent_name, network, files_pending } = session
  if (mode !== 'ephemeral' || agent_name !== null || network !== NO_NETWORK || files_pending !== 0)
    return false
  if (!deps.layers && (await needsInstall(await blueprintOf(deps, session)))) return false
  return (ownsSession && row.attempt === 1) || !(await hasFolders(deps, session.id))
}

/** Runs in an interpreter that is a sandbox of its own, and gone with the run. */
export async function runDirect(deps: ExecutionDeps, job: Job): Promise<void> {
  await deps.assertSandboxing()
  await getOpenSession(deps.db, job.row.tenant_id, job.row.session_id)
  if (!job.spare) assertRoom(deps)
  await runAttempt(deps, job, {
    path: job.spare ? 'warm' : 'cold',
    take: async () => {
      const { spare } = job
      job.spare = undefined
      const taken = await (spare ? takeSpare(deps, job, spare) : startInterpreter(deps, job))
      return { ...taken, release: () => taken.interpreter.stop() }
    },
    // It says so itself.
    isOutOfMemory: async () => false,
  })
}

/** What waits for its start has no slot yet, and will want one. */
function assertRoom({ pool, runs }: ExecutionDeps): void {
  pool.assertRoom()
  if (runs.starts.waiting >= pool.max)
    throw new AshError('pool_full', `${runs.starts.waiting} interpreters wait to be started already`)
}

/** It was started before anybody knew the variables of this session. */
async function takeSpare(
  deps: ExecutionDeps,
  { session, log }: Job,
  { sandbox, notes, bind }: SpareInterpreter,
): Promise<Omit<Taken, 'release'>> {
  bind(identityOf(deps, session))
  try {
    deps.pool.claim(sandbox.id, useOf(deps, session), 'running')
    for (const { type, data } of notes) void log.write(type, null, JSON.stringify(data))
    const { env } = setupOf(deps, session, await blueprintOf(deps, session))
    return { interpreter: sandbox, env }
  } catch (error) {
    // From now on nobody else knows of it.
    await sandbox.stop()
    throw error
  }
}

const useOf = (deps: ExecutionDeps, session: SessionRow) => ({
  ...poolUse(deps, session),
  evict: async () => false,
})

async function startInterpreter(deps: ExecutionDeps, job: Job): Promise<Omit<Taken, 'release'>> {
  const { session, row, log } = job
  const blueprint = await blueprintOf(deps, session)
  const owner = ownerOf(session)
  const used = await acquireLayer(deps, session, { blueprint, owner }, log)
  try {
    const interpreter = await inTurn(deps, job, () =>
      deps.pool.acquireInterpreter(
        {
          sandboxId: randomUUID(),
          language: row.language,
          dirs: sessionDirs(deps.dataDir, session.id),
          layer: used?.layer,
          owner,
          limits: storedLimits(session.limits),
          env: setupOf(deps, session, blueprint).env,
          onLimit: identityOf(deps, session).onLimit,
        },
        useOf(deps, session),
      ),
    )
    return { interpreter }
  } finally {
    used?.release()
  }
}

/** Few start at once. What is cancelled meanwhile, by the end of its session too, is not started: it would make folders. */
async function inTurn<Result>(
  { runs }: ExecutionDeps,
  job: Job,
  start: () => Promise<Result>,
): Promise<Result> {
  const place = runs.starts.enter()
  try {
    if (place.isWaiting) job.stopRun = async () => place.leave()
    await place.ready
    job.stopRun = undefined
    if (job.cancelReason !== undefined || job.isOver)
      throw new AshError('session_conflict', 'The execution was cancelled before it began')
    return await start()
  } finally {
    place.leave()
  }
}
