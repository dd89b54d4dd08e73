import { createHash, randomUUID } from 'node:crypto'
import { mkdir, readdir, readFile, rename, stat, utimes } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { keepLayer, type Layer, type LayerSize, layerIn, removeSessionDirs } from '@ash-ai/sandbox'
import { z } from 'zod'
import type { Db } from '../db/open-db.ts'
import { listAllVersions } from './agent-queries.ts'
import { fingerprintOf } from './agent-rows.ts'
import type { Blueprint } from './blueprint.ts'
import { hostInterpreters } from './host-interpreters.ts'

/** Of one agent: the newest, and a few that somebody may go back to. They can always be built again. */
const KEPT_PER_AGENT = 3
/** Of all that have no agent. */
const KEPT_PACKAGES = 20
/** Not an agent's folder: their names start with a letter or digit. */
const PACKAGES_DIR = '~packages'

export interface StoredLayer {
  name: string
  layer: Layer
  size: LayerSize
}

const rootOf = (dataDir: string) => join(dataDir, 'layers')
/** Not a tenant's folder: their names start with a letter or digit. */
const stagingOf = (dataDir: string) => join(rootOf(dataDir), '.staging')
const agentDirOf = (dataDir: string, tenantId: string, agentName: string) =>
  join(rootOf(dataDir), tenantId, agentName)

type VersionFacts = Pick<NonNullable<Blueprint['agent']>, 'version' | 'fingerprint'>

/**
 * Where the layer of an agent version, or of packages alone, is, if there is one. Another version, also one of the
 * same number, has another.
 */
export async function layerDir(
  dataDir: string,
  tenantId: string,
  { agent, added }: Pick<Blueprint, 'agent' | 'added'>,
): Promise<string> {
  const host = await hostInterpreters()
  if (!agent) return join(rootOf(dataDir), tenantId, PACKAGES_DIR, `p-${hashOf(`${added} ${host}`)}`)
  const name = layerName(agent, host)
  return join(agentDirOf(dataDir, tenantId, agent.name), added === undefined ? name : `${name}+${added}`)
}

/** What is installed for one Python or Node does not work with the next: a layer belongs to those it was made with. */
function layerName({ version, fingerprint }: VersionFacts, host: string): string {
  return `v${version}-${hashOf(`${fingerprint} ${host}`)}`
}

const hashOf = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 16)

const Size = z.object({ kilobytes: z.number(), entries: z.number() })

export async function findLayer(dir: string): Promise<StoredLayer | undefined> {
  const text = await readFile(join(dir, 'size.json'), 'utf8').catch(ignoreMissing)
  if (text === undefined) return undefined
  // What is used stays: the oldest are removed.
  const now = new Date()
  await utimes(dir, now, now).catch(ignoreMissing)
  return { name: basename(dir), layer: layerIn(dir), size: Size.parse(JSON.parse(text)) }
}

/** Keeps the folders of a sandbox that has ended. The layer appears whole or not at all. */
export async function storeLayer(
  dataDir: string,
  { folders, diskMb }: { folders: Layer; diskMb: number },
  dir: string,
): Promise<void> {
  const staging = join(await makeStaging(dataDir), randomUUID())
  try {
    await keepLayer(folders, staging, diskMb)
    await mkdir(dirname(dir), { recursive: true, mode: 0o700 })
    await rename(staging, dir)
  } catch (error) {
    await removeSessionDirs({ root: staging })
    throw error
  }
}

/** In two steps, so that half a layer is never taken for one. */
export async function removeLayer(dataDir: string, dir: string): Promise<void> {
  const staging = join(await makeStaging(dataDir), randomUUID())
  await rename(dir, staging).catch(ignoreMissing)
  await removeSessionDirs({ root: staging })
}

/** With the agent. No session uses it any more. */
export async function removeLayersOf(dataDir: string, tenantId: string, agentName: string): Promise<void> {
  await removeLayer(dataDir, agentDirOf(dataDir, tenantId, agentName))
}

/** The layers beside `dir`, of the same agent or of none, but for the few that were used last. */
export async function listOldLayers(dir: string): Promise<string[]> {
  const dirs = (await namesIn(dirname(dir))).map((name) => join(dirname(dir), name))
  const dated = await Promise.all(dirs.map(async (path) => ({ path, at: (await stat(path)).mtimeMs })))
  return dated
    .sort((one, other) => other.at - one.at)
    .slice(basename(dirname(dir)) === PACKAGES_DIR ? KEPT_PACKAGES : KEPT_PER_AGENT)
    .map(({ path }) => path)
}

/** At start: removes what a killed server left half done, and layers that belong to no version. */
export async function cleanLayers({ db, dataDir }: { db: Db; dataDir: string }): Promise<void> {
  await removeSessionDirs({ root: stagingOf(dataDir) })
  const host = await hostInterpreters()
  const versions = (await listAllVersions(db)).map((row) => {
    const facts = { version: row.version, fingerprint: fingerprintOf(row) }
    return join(agentDirOf(dataDir, row.tenant_id, row.agent_name), layerName(facts, host))
  })
  const known = new Set(versions)
  for (const tenant of await namesIn(rootOf(dataDir))) {
    for (const agent of await namesIn(join(rootOf(dataDir), tenant))) {
      if (agent === PACKAGES_DIR) continue
      const dir = agentDirOf(dataDir, tenant, agent)
      const paths = (await namesIn(dir)).map((name) => join(dir, name))
      // With packages beside those of the version, its name is the beginning.
      const unknown = paths.filter((path) => !known.has(join(dir, basename(path).split('+', 1).join())))
      for (const path of unknown) await removeLayer(dataDir, path)
    }
  }
  await removeSessionDirs({ root: stagingOf(dataDir) })
}

async function makeStaging(dataDir: string): Promise<string> {
  await mkdir(stagingOf(dataDir), { recursive: true, mode: 0o700 })
  return stagingOf(dataDir)
}

const namesIn = async (dir: string) => (await readdir(dir).catch(ignoreMissing)) ?? []

function ignoreMissing(error: unknown): undefined {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
  throw error
}
