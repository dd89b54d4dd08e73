import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type Agent, AshError, DeployConfig } from '@ash-ai/shared'
import { assertCredentials } from '../credentials/credential-queries.ts'
import { TurnQueue } from '../db/turn-queue.ts'
import { toDetails, validationError } from '../http/validation-error.ts'
import { assertTemplate } from '../templates/template-queries.ts'
import {
  agentVersionDir,
  discardFolder,
  type FolderEntry,
  publishFolder,
  type StagedFolder,
  stageFolder,
  stagingRoot,
} from './agent-folder.ts'
import { type AgentStore, deleteAgent, getAgent, insertVersion, listContentHashes } from './agent-queries.ts'
import type { AgentEnv } from './agent-rows.ts'
import { cleanLayers, removeLayersOf } from './layer-store.ts'

export interface DeployRequest {
  name: string
  entries: Iterable<FolderEntry> | AsyncIterable<FolderEntry>
  /** Becomes CLAUDE.md where the entries have none. */
  systemPrompt?: string
  /** Over the options in the folder's ash.json. */
  config?: DeployConfig
  env?: AgentEnv
}

// A folder and the row that names it appear, and disappear, together as far as others on this host can see.
const folders = new TurnQueue()

/** Makes a version from the entries. The same again is not a new version. Fails without leaving a trace. */
export async function deployAgent(
  store: AgentStore,
  tenantId: string,
  { name, entries, systemPrompt, config, env = {} }: DeployRequest,
): Promise<{ agent: Agent; isNew: boolean }> {
  const staged = await stageFolder(store.dataDir, withInstructions(entries, systemPrompt))
  try {
    const options = { ...(await readOptions(staged)), ...config }
    const sourceOf = (name: 'credentials' | 'template') =>
      `${config?.[name] ? 'config' : OPTIONS_FILE}.${name}`
    await assertCredentials(store.db, tenantId, options.credentials, sourceOf('credentials'))
    await assertTemplate(store.db, tenantId, options.template, sourceOf('template'))
    const endTurn = await folders.take()
    try {
      await publishFolder(staged, agentVersionDir(store.dataDir, tenantId, staged.contentHash))
      const { isNew } = await insertVersion(store, tenantId, { ...staged, name, config: options, env })
      return { agent: await getAgent(store, tenantId, name), isNew }
    } finally {
      endTurn()
    }
  } catch (error) {
    await discardFolder(staged)
    throw error
  }
}

export async function removeAgent(store: AgentStore, tenantId: string, name: string): Promise<void> {
  const endTurn = await folders.take()
  try {
    const { orphans } = await deleteAgent(store.db, tenantId, name)
    for (const hash of orphans) await discardFolder({ dir: agentVersionDir(store.dataDir, tenantId, hash) })
    await removeLayersOf(store.dataDir, tenantId, name)
  } finally {
    endTurn()
  }
}

/** At start: removes what a crash left half done, and folders and layers that no version names. */
export async function cleanAgentFolders({ db, dataDir }: Pick<AgentStore, 'db' | 'dataDir'>): Promise<void> {
  await rm(stagingRoot(dataDir), { recursive: true, force: true })
  const known = new Set((await listContentHashes(db)).map((row) => join(row.tenant_id, row.content_hash)))
  for (const tenant of await readFolder(join(dataDir, 'agents'))) {
    for (const hash of await readFolder(join(dataDir, 'agents', tenant))) {
      if (!known.has(join(tenant, hash))) await discardFolder({ dir: join(dataDir, 'agents', tenant, hash) })
    }
  }
  await cleanLayers({ db, dataDir })
}

const INSTRUCTIONS = 'CLAUDE.md'

async function* withInstructions(
  entries: DeployRequest['entries'],
  systemPrompt: string | undefined,
): AsyncGenerator<FolderEntry> {
  let hasInstructions = false
  for await (const entry of entries) {
    hasInstructions ||= entry.path === INSTRUCTIONS
    yield entry
  }
  if (hasInstructions) return
  if (systemPrompt === undefined) {
    throw new AshError('agent_invalid', 'The folder has no CLAUDE.md, which says what the agent is to do')
  }
  yield { path: INSTRUCTIONS, isExecutable: false, content: [Buffer.from(systemPrompt)] }
}

const OPTIONS_FILE = 'ash.json'

async function readOptions({ dir }: StagedFolder): Promise<DeployConfig> {
  let text: string
  try {
    text = await readFile(join(dir, OPTIONS_FILE), 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'EISDIR'))
      return {}
    throw error
  }
  const result = DeployConfig.safeParse(parseJson(text))
  if (result.success) return result.data
  const details = toDetails(result.error, '').map(({ path, message }) => ({
    path: path === '' ? OPTIONS_FILE : `${OPTIONS_FILE}.${path}`,
    message,
  }))
  throw validationError(details, 'agent_invalid')
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new AshError('agent_invalid', `${OPTIONS_FILE} is not valid JSON`, { cause: error })
  }
}

async function readFolder(path: string): Promise<string[]> {
  try {
    return await readdir(path)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return []
    throw error
  }
}
