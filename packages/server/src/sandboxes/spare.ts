import { randomUUID } from 'node:crypto'
import {
  Budget,
  type DiskBackend,
  type Layer,
  markSetUp,
  type PoolUse,
  type PreparedSandbox,
  type PriceTable,
  parsePolicy,
  roomMb,
  type SandboxPool,
  type SandboxRequest,
  type SessionDirs,
  sessionDirs,
} from '@ash-ai/sandbox'
import { AshError, type Limits } from '@ash-ai/shared'
import { hasScript, needsInstall, type SetupNote } from '../agents/agent-install.ts'
import type { AgentLayers } from '../agents/agent-layers.ts'
import type { AgentForSession } from '../agents/agent-queries.ts'
import { findLayer, layerDir } from '../agents/layer-store.ts'

export interface SpareDeps {
  dataDir: string
  pool: SandboxPool
  disk: DiskBackend
  prices: PriceTable
  /** Undefined under a provider whose sandboxes cannot have one. */
  layers: AgentLayers | undefined
}

/** Who uses a sandbox that nobody did so far. */
type SpareIdentity = Required<Pick<SandboxRequest, 'findCredential' | 'onDenied' | 'onLimit'>>

/** A sandbox that is ready, under the id of a session that does not exist yet, with folders of its own. */
export interface Spare {
  sessionId: string
  /** Host user of its files; null where the server cannot switch users. */
  uid: number | null
  sandbox: PreparedSandbox
  /** Without limits, and nothing spent. */
  budget: Budget
  /** Nothing of the agent is left to be run in it. */
  isSetUp: boolean
  /** What the set-up of the agent said, for the log of the session. */
  notes: SetupNote[]
  /** Before `configure`: whose credentials it may use from now on, and who hears of it. */
  bind(identity: SpareIdentity): void
}

interface SpareRequest {
  tenantId: string
  agent: AgentForSession
  limits: Limits
  uid: number | null
  evict: PoolUse['evict']
}

/**
 * Starts a sandbox that can become any session of the agent version: with its files and the agent SDK imported,
 * without network, environment or secrets. Leaves nothing behind where it cannot.
 */
export async function prepareSpare(deps: SpareDeps, request: SpareRequest): Promise<Spare> {
  const { tenantId, agent, limits, uid, evict } = request
  const sessionId = randomUUID()
  const dirs = sessionDirs(deps.dataDir, sessionId)
  const budget = new Budget(deps.prices)
  const notes: SetupNote[] = []
  let identity: SpareIdentity | undefined
  const prepare = (layer: Layer | undefined) =>
    deps.pool.prepare(
      {
        sandboxId: randomUUID(),
        dirs,
        agentDir: agent.dir,
        layer,
        owner: ownerOf(uid),
        limits,
        network: parsePolicy('none'),
        budget,
        findCredential: async (name) => identity?.findCredential?.(name),
        onDenied: (denied) => identity?.onDenied(denied),
        onLimit: (hit) => identity?.onLimit(hit),
        preload: true,
      },
      { tenantId, sessionId: null, agentName: agent.name, agentVersion: agent.version, evict },
    )
  try {
    const sandbox = await withLayer(deps, request, notes, prepare)
    const bind = (to: SpareIdentity) => {
      identity = to
    }
    const isSetUp = await finishSetUp(deps, agent, dirs)
    return { sessionId, uid, sandbox, budget, isSetUp, notes, bind }
  } catch (error) {
    await deps.disk.remove(dirs)
    throw error
  }
}

/** Says whether nothing is left to do: `startup.sh` is for the session, whose variables it may need. */
async function finishSetUp(
  { layers }: SpareDeps,
  agent: AgentForSession,
  dirs: SessionDirs,
): Promise<boolean> {
  if (await needsInstall(agent)) return layers !== undefined && !(await hasScript(agent, 'startup.sh'))
  await markSetUp(dirs)
  return !(await hasScript(agent, 'startup.sh'))
}

/** Whether a spare can be had without building anything: what an agent installs, its first session builds. */
export async function hasItsLayer(
  { dataDir, layers }: Pick<SpareDeps, 'dataDir' | 'layers'>,
  tenantId: string,
  agent: AgentForSession,
): Promise<boolean> {
  if (!layers || !(await needsInstall(agent))) return true
  return (await findLayer(await layerDir(dataDir, tenantId, agent))) !== undefined
}

async function withLayer<Result>(
  { layers }: SpareDeps,
  { tenantId, agent, limits, uid }: SpareRequest,
  notes: SetupNote[],
  work: (layer: Layer | undefined) => Promise<Result>,
): Promise<Result> {
  if (!layers || !(await needsInstall(agent))) return work(undefined)
  const note = async (each: SetupNote) => void notes.push(each)
  const used = await layers.acquire({ tenantId, agent, limits, owner: ownerOf(uid) }, note)
  try {
    if (roomMb(used.size) > limits.diskMb)
      throw new AshError('disk_full', `The set-up of the agent takes more than ${limits.diskMb} MB`)
    return await work(used.layer)
  } finally {
    used.release()
  }
}

const ownerOf = (uid: number | null) => (uid === null ? undefined : { uid, gid: uid })
