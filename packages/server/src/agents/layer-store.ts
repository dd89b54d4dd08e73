import { createHash, randomUUID } from 'node:crypto'
import { mkdir, readdir, readFile, rename, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { keepLayer, type Layer, type LayerSize, layerIn, removeSessionDirs } from '@ash-ai/sandbox'
import { z } from 'zod'
import type { Db } from '../db/open-db.ts'
import { type AgentForSession, listAllVersions } from './agent-queries.ts'
import { fingerprintOf } from './agent-rows.ts'
import { hostInterpreters } from './host-interpreters.ts'

/** Of one agent: the newest, and a few that somebody may go back to. They can always be built again. */
const KEPT_PER_AGENT = 3

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

type VersionFacts = Pick<AgentForSession, 'version' | 'fingerprint'>

/** Where the layer of an agent version is, if there is one. Another version, also one of the same number, has another. */
export async function layerDir(
  dataDir: string,
  tenantId: string,
  agent: VersionFacts & Pick<AgentForSession, 'name'>,
): Promise<string> {
  return join(agentDirOf(dataDir, tenantId, agent.name), layerName(agent, await hostInterpreters()))
}

/** What is installed for one Python or Node does not work with the next: a layer belongs to those it was made with. */
function layerName({ version, fingerprint }: VersionFacts, host: string): string {
  const hash = createHash('sha256').update(`${fingerprint} ${host}`)
  return `v${version}-${hash.digest('hex').slice(0, 16)}`
}

const Size = z.object({ kilobytes: z.number(), entries: z.number() })

export async function findLayer(dir: string): Promise<StoredLayer | undefined> {
  const text = await readFile(join(dir, 'size.json'), 'utf8').catch(ignoreMissing)
  if (text === undefined) return undefined
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

/** The layers of the agent that `dir` is one of, but for the newest few. */
export async function listOldLayers(dir: string): Promise<string[]> {
  const dirs = (await namesIn(dirname(dir))).map((name) => join(dirname(dir), name))
  const dated = await Promise.all(dirs.map(async (path) => ({ path, at: (await stat(path)).mtimeMs })))
  return dated
    .sort((one, other) => other.at - one.at)
    .slice(KEPT_PER_AGENT)
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
      const dir = agentDirOf(dataDir, tenant, agent)
      const unknown = (await namesIn(dir)).map((name) => join(dir, name)).filter((path) => !known.has(path))
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
