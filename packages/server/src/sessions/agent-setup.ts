import {
  isSetUp,
  markSetUp,
  type NetworkPolicy,
  roomMb,
  type SessionDirs,
  sessionDirs,
} from '@ash-ai/sandbox'
import { AshError } from '@ash-ai/shared'
import {
  type InstallHost,
  install,
  needsInstall,
  runScript,
  type SetupNote,
  type SetupRun,
} from '../agents/agent-install.ts'
import type { LayerRequest, UsedLayer } from '../agents/agent-layers.ts'
import { effectiveLimits, storedLimits } from './effective-limits.ts'
import type { EventLog } from './event-log.ts'
import type { SessionDeps } from './session-deps.ts'
import type { SessionRow } from './session-queries.ts'

/**
 * The layer that a new session's folders are copied from. Undefined where there is nothing to install, where the
 * session has its folders already, and under a provider whose sandboxes cannot have one.
 */
export async function acquireLayer(
  deps: SessionDeps,
  row: SessionRow,
  { blueprint, owner }: Pick<LayerRequest, 'blueprint' | 'owner'>,
  log: EventLog,
): Promise<UsedLayer | undefined> {
  if (!deps.layers || (await isSetUp(sessionDirs(deps.dataDir, row.id))) || !(await needsInstall(blueprint)))
    return undefined
  const limits = effectiveLimits(deps.limits, blueprint.config.limits)
  const used = await deps.layers.acquire({ tenantId: row.tenant_id, blueprint, limits, owner }, noteIn(log))
  const { diskMb } = storedLimits(row.limits)
  const takesMb = roomMb(used.size)
  if (takesMb <= diskMb) return used
  used.release()
  throw new AshError(
    'disk_full',
    `The set-up takes ${takesMb} MB, more than the limits.diskMb of ${diskMb} of this session. Create one with more.`,
  )
}

interface Setup extends Omit<SetupRun, 'note'> {
  log: EventLog
  dirs: SessionDirs
  policy: NetworkPolicy
}

/**
 * Runs what the set-up still needs inside the sandbox: all of it once where the folders come from no layer, an agent's
 * `startup.sh` whenever a sandbox starts. The output is in the session's log; what fails fails the start.
 */
export async function setUp(host: InstallHost, { log, dirs, policy, ...setup }: Setup): Promise<void> {
  const run = { ...setup, note: noteIn(log) }
  if (!(await isSetUp(dirs))) {
    await install(host, run, policy)
    await markSetUp(dirs)
  }
  await runScript(run, 'startup.sh')
}

const noteIn =
  (log: EventLog) =>
  async ({ type, data }: SetupNote): Promise<void> => {
    await log.append(type, null, JSON.stringify(data))
  }
