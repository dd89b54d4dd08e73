import { randomUUID } from 'node:crypto'
import {
  Budget,
  type DirectInterpreter,
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
  sessionDirs,
} from '@ash-ai/sandbox'
import { AshError, type Language, type Limits } from '@ash-ai/shared'
import {
  hasScript,
  type InstallHost,
  installedEnv,
  needsInstall,
  type SetupNote,
} from '../agents/agent-install.ts'
import type { AgentLayers } from '../agents/agent-layers.ts'
import type { Blueprint } from '../agents/blueprint.ts'
import { findLayer, layerDir } from '../agents/layer-store.ts'

export interface SpareDeps {
  dataDir: string
  pool: SandboxPool
  disk: DiskBackend
  prices: PriceTable
  install: InstallHost
  /** Undefined under a provider whose sandboxes cannot have one. */
  layers: AgentLayers | undefined
}

/** Who uses a sandbox that nobody did so far. */
type SpareIdentity = Required<Pick<SandboxRequest, 'findCredential' | 'onDenied' | 'onLimit'>>

/** Something that is ready, under the id of a session that does not exist yet, with folders of its own. */
interface SpareOf<Sandbox> {
  sessionId: string
  /** Host user of its files; null where the server cannot switch users. */
  uid: number | null
  sandbox: Sandbox
  /** What the set-up said, for the log of the session. */
  notes: SetupNote[]
}

/** A sandbox for a session that stays. */
export interface Spare extends SpareOf<PreparedSandbox> {
  /** Without limits, and nothing spent. */
  budget: Budget
  /** Nothing is left to be installed or run in it. */
  isSetUp: boolean
  /** Before `configure`: whose credentials it may use from now on, and who hears of it. */
  bind(identity: SpareIdentity): void
}

/** An interpreter for one run, up and waiting for it. */
export interface SpareInterpreter extends SpareOf<DirectInterpreter> {
  /** Before the run: who hears of the limits that it meets. */
  bind(identity: Pick<SpareIdentity, 'onLimit'>): void
}

export interface SpareRequest {
  tenantId: string
  blueprint: Blueprint
  /** Of an interpreter. */
  language: Language
  limits: Limits
  uid: number | null
  evict: PoolUse['evict']
}

/**
 * Starts a sandbox that can become any session of the blueprint: with its files and the agent SDK imported, or without an
 * agent an interpreter up; without network, environment or secrets. Leaves nothing behind where it cannot.
 */
export async function prepareSpare(deps: SpareDeps, request: SpareRequest): Promise<Spare> {
  const { tenantId, blueprint, language, limits, uid, evict } = request
  const { agent } = blueprint
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
        agentDir: blueprint.dir,
        layer,
        owner: ownerOf(uid),
        limits,
        network: parsePolicy('none'),
        budget,
        findCredential: async (name) => identity?.findCredential?.(name),
        onDenied: (denied) => identity?.onDenied(denied),
        onLimit: (hit) => identity?.onLimit(hit),
        preload: agent ? 'agent' : { language, env: installedEnv(deps.install, blueprint, dirs) },
      },
      useOf(tenantId, blueprint, evict),
    )
  try {
    // Asked before there is a sandbox: from then on the pool counts a spare, and somebody may want it.
    const [installs, hasStartup] = [await needsInstall(blueprint), await hasScript(blueprint, 'startup.sh')]
    const sandbox = await withLayer(deps, request, notes, prepare)
    const bind = (to: SpareIdentity) => {
      identity = to
    }
    if (!installs) await markSetUp(dirs)
    // `startup.sh` is for the session, whose variables it may need.
    const isSetUp = !hasStartup && (!installs || deps.layers !== undefined)
    return { sessionId, uid, sandbox, budget, isSetUp, notes, bind }
  } catch (error) {
    await deps.disk.remove(dirs)
    throw error
  }
}

/** Starts an interpreter that can be that of any run of the blueprint: it knows nobody's variables. */
export async function prepareSpareInterpreter(
  deps: SpareDeps,
  request: SpareRequest,
): Promise<SpareInterpreter> {
  const { tenantId, blueprint, language, limits, uid, evict } = request
  const sessionId = randomUUID()
  const dirs = sessionDirs(deps.dataDir, sessionId)
  const notes: SetupNote[] = []
  let identity: Pick<SpareIdentity, 'onLimit'> | undefined
  const prepare = (layer: Layer | undefined) =>
    deps.pool.prepareInterpreter(
      {
        sandboxId: randomUUID(),
        language,
        dirs,
        layer,
        owner: ownerOf(uid),
        limits,
        env: installedEnv(deps.install, blueprint, dirs),
        onLimit: (hit) => identity?.onLimit(hit),
      },
      useOf(tenantId, blueprint, evict),
    )
  try {
    const sandbox = await withLayer(deps, request, notes, prepare)
    const bind = (to: Pick<SpareIdentity, 'onLimit'>) => {
      identity = to
    }
    return { sessionId, uid, sandbox, notes, bind }
  } catch (error) {
    await deps.disk.remove(dirs)
    throw error
  }
}

const useOf = (tenantId: string, { agent, template }: Blueprint, evict: PoolUse['evict']): PoolUse => ({
  tenantId,
  sessionId: null,
  agentName: agent?.name ?? null,
  agentVersion: agent?.version ?? null,
  template: template ?? '',
  evict,
})

/** Whether a spare can be had without building anything: what is to be installed, the first session builds. */
export async function hasItsLayer(
  { dataDir, layers }: Pick<SpareDeps, 'dataDir' | 'layers'>,
  tenantId: string,
  blueprint: Blueprint,
): Promise<boolean> {
  if (!layers || !(await needsInstall(blueprint))) return true
  return (await findLayer(await layerDir(dataDir, tenantId, blueprint))) !== undefined
}

async function withLayer<Result>(
  { layers }: SpareDeps,
  { tenantId, blueprint, limits, uid }: SpareRequest,
  notes: SetupNote[],
  work: (layer: Layer | undefined) => Promise<Result>,
): Promise<Result> {
  if (!layers || !(await needsInstall(blueprint))) return work(undefined)
  const note = async (each: SetupNote) => void notes.push(each)
  const used = await layers.acquire({ tenantId, blueprint, limits, owner: ownerOf(uid) }, note)
  try {
    if (roomMb(used.size) > limits.diskMb)
      throw new AshError('disk_full', `The set-up takes more than ${limits.diskMb} MB`)
    return await work(used.layer)
  } finally {
    used.release()
  }
}

const ownerOf = (uid: number | null) => (uid === null ? undefined : { uid, gid: uid })
