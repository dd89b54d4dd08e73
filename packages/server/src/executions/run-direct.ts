import { randomUUID } from 'node:crypto'
import { type Interpreter, sessionDirs } from '@ash-ai/sandbox'
import { needsInstall } from '../agents/agent-install.ts'
import { hasFolders } from '../checkpoints/session-files.ts'
import { acquireLayer } from '../sessions/agent-setup.ts'
import { blueprintOf } from '../sessions/blueprint-of.ts'
import { storedLimits } from '../sessions/effective-limits.ts'
import { ownerOf } from '../sessions/open-session.ts'
import { identityOf, poolUse, setupOf } from '../sessions/session-wake.ts'
import type { ExecutionRow } from './execution-queries.ts'
import type { ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { runAttempt } from './run-attempt.ts'

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
  deps.pool.assertRoom()
  await runAttempt(deps, job, {
    path: 'cold',
    take: async () => {
      const { interpreter, path } = await takeInterpreter(deps, job)
      return { interpreter, path, release: () => interpreter.stop() }
    },
    // It says so itself.
    isOutOfMemory: async () => false,
  })
}

/** An interpreter that has run nothing yet, and whether it was waiting for that. */
async function takeInterpreter(
  deps: ExecutionDeps,
  { session, row, log }: Job,
): Promise<{ interpreter: Interpreter; path: NonNullable<ExecutionRow['path']> }> {
  const blueprint = await blueprintOf(deps, session)
  const owner = ownerOf(session)
  const used = await acquireLayer(deps, session, { blueprint, owner }, log)
  try {
    const interpreter = await deps.pool.acquireInterpreter(
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
      { ...poolUse(deps, session), evict: async () => false },
    )
    return { interpreter, path: 'cold' }
  } finally {
    used?.release()
  }
}
