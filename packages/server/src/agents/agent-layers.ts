import { randomUUID } from 'node:crypto'
import {
  Budget,
  type DiskBackend,
  type Owner,
  type PriceTable,
  parsePolicy,
  type Sandbox,
  type SandboxPool,
  type SessionDirs,
  sessionDirs,
} from '@ash-ai/sandbox'
import { AshError, isAshError, type Limits } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import { type InstallHost, install, installedEnv, type SetupNote } from './agent-install.ts'
import type { Blueprint } from './blueprint.ts'
import {
  findLayer,
  layerDir,
  listOldLayers,
  removeLayer,
  type StoredLayer,
  storeLayer,
} from './layer-store.ts'

interface LayerDeps {
  dataDir: string
  pool: SandboxPool
  disk: DiskBackend
  prices: PriceTable
  install: InstallHost
  log: FastifyBaseLogger
}

export interface LayerRequest {
  tenantId: string
  blueprint: Blueprint
  /** Of the blueprint, not of one session: a layer is for all that share it. */
  limits: Limits
  /** Host user of the session that asks. It has no sandbox yet, so nothing else runs as this user. */
  owner: Owner | undefined
}

export interface UsedLayer extends StoredLayer {
  /** When the copy is made: until then the layer stays. */
  release(): void
}

interface Build {
  notes: SetupNote[]
  failure?: unknown
}

/** What a set-up runs into is told so many times; a loop inside must not fill the logs of all that wait. */
const MAX_BOUNDARY_NOTES = 50
const MAX_HINTS = 5

/** No model: what a set-up asks of it would be paid by nobody. */
const NO_MODEL = { maxTokens: 0 }

/**
 * What packages and an agent's install.sh made of workspace and home, kept for every session with the same. Layers are
 * built in a sandbox of their own, which knows the agent, if there is one, and nothing of any session.
 */
export class AgentLayers {
  readonly #deps: LayerDeps
  readonly #builds = new Map<string, Promise<Build>>()
  readonly #removals = new Map<string, Promise<void>>()
  readonly #uses = new Map<string, number>()
  readonly #sandboxes = new Set<Sandbox>()
  #isClosed = false

  constructor(deps: LayerDeps) {
    this.#deps = deps
  }

  /**
   * The layer of a blueprint, built if there is none; who asks meanwhile waits for the same build and hears
   * the same of it. A build that fails fails for all of them, and the next to ask begins another.
   */
  async acquire(request: LayerRequest, note: (note: SetupNote) => Promise<void>): Promise<UsedLayer> {
    const dir = await layerDir(this.#deps.dataDir, request.tenantId, request.blueprint)
    await this.#removals.get(dir)
    this.#uses.set(dir, (this.#uses.get(dir) ?? 0) + 1)
    let isReleased = false
    const release = () => {
      if (!isReleased) this.#release(dir)
      isReleased = true
    }
    try {
      return { ...(await this.#findOrBuild(dir, request, note)), release }
    } catch (error) {
      release()
      throw error
    }
  }

  /** Stops what is being built. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const sandbox of this.#sandboxes) await sandbox.stop()
    await Promise.allSettled(this.#builds.values())
  }

  async #findOrBuild(
    dir: string,
    request: LayerRequest,
    note: (note: SetupNote) => Promise<void>,
  ): Promise<StoredLayer> {
    const { agent } = request.blueprint
    const whose = agent ? ` of agent ${agent.name}, version ${agent.version}` : ' of packages'
    const tell = (text: string) => note({ type: 'log', data: { level: 'info', source: 'layer', text } })
    const stored = this.#builds.has(dir) ? undefined : await findLayer(dir)
    if (stored) {
      await tell(`Reused layer ${stored.name}${whose}`)
      return stored
    }
    const build = this.#builds.get(dir) ?? this.#begin(dir, request)
    const { notes, failure } = await build
    for (const each of notes) await note(each)
    if (failure !== undefined) throw failure
    const built = await findLayer(dir)
    if (!built) throw new Error('a layer that was built is not there')
    await tell(`Built layer ${built.name}${whose}`)
    return built
  }

  #begin(dir: string, request: LayerRequest): Promise<Build> {
    const notes: SetupNote[] = []
    const build = this.#build(dir, request, notes)
      .then(
        () => ({ notes }),
        (failure: unknown) => ({ notes, failure }),
      )
      .finally(() => this.#builds.delete(dir))
    this.#builds.set(dir, build)
    return build
  }

  async #build(dir: string, request: LayerRequest, notes: SetupNote[]): Promise<void> {
    if (this.#isClosed) throw stopping()
    if (await findLayer(dir)) return // Another build ended just before this one began.
    const { dataDir, disk, log } = this.#deps
    // Where a start removes whatever belongs to no session.
    const dirs = sessionDirs(dataDir, `layer-${randomUUID()}`)
    try {
      await this.#install(dirs, request, notes)
      // Kept, not only mounted: a disk that nobody holds is unmounted, even between two steps of a long copy.
      await disk.acquire(dirs, request.limits.diskMb)
      await storeLayer(dataDir, { folders: dirs, diskMb: request.limits.diskMb }, dir).catch(asCopyFailure)
    } finally {
      await disk.remove(dirs)
    }
    log.info({ tenantId: request.tenantId, agent: request.blueprint.agent?.name, dir }, 'layer built')
    await this.#removeOld(dir).catch((err: unknown) => log.warn({ err }, 'old layers could not be removed'))
  }

  async #install(dirs: SessionDirs, request: LayerRequest, notes: SetupNote[]): Promise<void> {
    const { blueprint } = request
    const policy = parsePolicy(blueprint.config.network ?? 'none')
    const sandbox = await this.#startSandbox(dirs, request, notes)
    this.#sandboxes.add(sandbox)
    try {
      if (this.#isClosed) throw stopping()
      const note = (each: SetupNote) => notes.push(each)
      await install(this.#deps.install, { sandbox, blueprint, note }, policy)
    } catch (error) {
      throw this.#isClosed ? stopping() : asSetupFailure(error, notes)
    } finally {
      this.#sandboxes.delete(sandbox)
      await sandbox.stop()
      await sandbox.exited
    }
  }

  #startSandbox(
    dirs: SessionDirs,
    { blueprint, limits, owner }: LayerRequest,
    notes: SetupNote[],
  ): Promise<Sandbox> {
    const { pool, prices, install: host } = this.#deps
    return pool.acquire({
      sandboxId: randomUUID(),
      dirs,
      agentDir: blueprint.dir,
      owner,
      limits,
      network: parsePolicy(blueprint.config.network ?? 'none'),
      budget: new Budget(prices, NO_MODEL),
      onDenied: (data) => addBounded(notes, { type: 'egress_denied', data }),
      onLimit: (data) => addBounded(notes, { type: 'limit', data }),
      setup: { sessionId: 'layer', env: { ...installedEnv(host, blueprint, dirs), ...blueprint.env } },
    })
  }

  async #removeOld(dir: string): Promise<void> {
    for (const old of await listOldLayers(dir)) {
      if (this.#uses.has(old) || this.#builds.has(old)) continue
      const removal = removeLayer(this.#deps.dataDir, old).finally(() => this.#removals.delete(old))
      this.#removals.set(old, removal)
      await removal
    }
  }

  #release(dir: string): void {
    const uses = (this.#uses.get(dir) ?? 1) - 1
    if (uses === 0) this.#uses.delete(dir)
    else this.#uses.set(dir, uses)
  }
}

function addBounded(notes: SetupNote[], note: SetupNote): void {
  if (notes.length < MAX_BOUNDARY_NOTES) notes.push(note)
}

const stopping = () => new AshError('server_stopping', 'The server is shutting down')

const UNCOPIED =
  'What the set-up made cannot be copied. A path may be too long (4096 characters); the log of the server has the reason.'

function asCopyFailure(error: unknown): never {
  const reason = isAshError(error) ? error.message : UNCOPIED
  throw new AshError('setup_failed', reason, { cause: error })
}

/** Whatever ended the set-up, and what it was refused on the way: that is often the cause. */
function asSetupFailure(error: unknown, notes: SetupNote[]): unknown {
  if (!isAshError(error)) return error
  const denied = notes.flatMap(({ type, data }) => (type === 'egress_denied' ? [data] : []))
  const hints = denied
    .slice(0, MAX_HINTS)
    .map(({ host, port, reason, setting }) =>
      setting
        ? `; ${host}:${port} was refused, ${setting} would allow it`
        : `; ${host}:${port} was refused: ${reason}`,
    )
  const text = error.code === 'setup_failed' ? error.message : `The set-up did not end: ${error.message}`
  return new AshError('setup_failed', text + hints.join(''), { cause: error })
}
