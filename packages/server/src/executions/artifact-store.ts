import { type FileHandle, open, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { collectArtifacts, type FileScan, sessionDirs } from '@ash-ai/sandbox'
import { type Artifact, AshError } from '@ash-ai/shared'
import {
  type ExecutionChange,
  type ExecutionRow,
  forgetArtifacts,
  listExpiredArtifacts,
  listKeptIds,
} from './execution-queries.ts'
import type { ExecutionDeps } from './executions.ts'

const DAY_MS = 86_400_000
const EXPIRED_AT_ONCE = 100
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** As the row has it. `file` is its name in the folder of the execution; absent where it was too large to be kept. */
export interface StoredArtifact extends Omit<Artifact, 'isKept'> {
  file?: string
}

type Store = Pick<ExecutionDeps, 'dataDir' | 'db' | 'hostId' | 'log'>

const folderOf = ({ dataDir }: Pick<Store, 'dataDir'>, tenantId: string, executionId: string) =>
  join(dataDir, 'artifacts', tenantId, executionId)

/**
 * Copies what differs from `before` out of the workspace, as far as the session has room for more. A run without changes
 * costs no file.
 */
export async function keepArtifacts(
  deps: ExecutionDeps,
  row: ExecutionRow,
  before: FileScan,
): Promise<ExecutionChange> {
  try {
    const dir = sessionDirs(deps.dataDir, row.session_id).workspace
    const to = folderOf(deps, row.tenant_id, row.id)
    const { artifacts, isComplete, bytes } = await deps.runs.artifacts.use(deps, row, async (maxBytes) => {
      const collected = await collectArtifacts({ dir, before, to, maxBytes })
      return { ...collected, bytes: keptBytes(collected.artifacts) }
    })
    if (artifacts.length === 0) return { artifacts: null, artifacts_complete: isComplete ? 1 : 0 }
    const stored = artifacts.map(
      ({ path, size, mimeType, sha256, stored: file }): StoredArtifact => ({
        path,
        size,
        mimeType,
        ...(file !== undefined && sha256 !== undefined && { sha256, file }),
      }),
    )
    return {
      artifacts: JSON.stringify(stored),
      artifacts_complete: isComplete ? 1 : 0,
      artifacts_until: stored.some(({ file }) => file !== undefined)
        ? Date.now() + deps.artifactDays * DAY_MS
        : null,
      artifacts_bytes: bytes,
    }
  } catch (error) {
    // The outcome of the code is known: that counts for more than its files.
    deps.log.error({ err: error, executionId: row.id }, 'the files of a run were not kept')
    return { artifacts: null, artifacts_complete: 0 }
  }
}

const keptBytes = (artifacts: { size: number; stored?: string | undefined }[]) =>
  artifacts.reduce((sum, { size, stored }) => sum + (stored === undefined ? 0 : size), 0)

export const shownArtifacts = (stored: StoredArtifact[], areKept: boolean): Artifact[] =>
  stored.map(({ file, ...artifact }) => ({ ...artifact, isKept: areKept && file !== undefined }))

export interface OpenArtifact {
  handle: FileHandle
  artifact: StoredArtifact
}

/** Throws `artifact_not_found`. Whoever asks closes the file. */
export async function openArtifact(deps: Store, row: ExecutionRow, path: string): Promise<OpenArtifact> {
  const artifacts = row.artifacts === null ? [] : (JSON.parse(row.artifacts) as StoredArtifact[])
  const artifact = artifacts.find((each) => each.path === path)
  if (!artifact) throw notFound(`Execution ${row.id} left no file "${path}"`)
  if (artifact.file === undefined || row.artifacts_until === null)
    throw notFound(`The file "${path}" of execution ${row.id} is not kept`)
  try {
    const handle = await open(join(folderOf(deps, row.tenant_id, row.id), artifact.file), 'r')
    return { handle, artifact }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    throw notFound(`The file "${path}" of execution ${row.id} is kept no longer`)
  }
}

const notFound = (message: string) => new AshError('artifact_not_found', message)

/** What a browser may show as what it is; everything else is bytes. */
const SHOWN_TYPES = /^(image\/(png|jpeg|gif|webp)|text\/(plain|csv)|application\/json)$/

export const servedType = ({ mimeType }: Pick<StoredArtifact, 'mimeType'>) =>
  SHOWN_TYPES.test(mimeType) ? mimeType : 'application/octet-stream'

/** All that an execution left, which is about to be forgotten itself. */
export const removeArtifacts = (deps: Pick<Store, 'dataDir'>, tenantId: string, executionId: string) =>
  rm(folderOf(deps, tenantId, executionId), { recursive: true, force: true })

/** Removes files that have been kept for long enough, and folders of executions that are no more. */
export async function cleanArtifacts(deps: Store, now = Date.now()): Promise<void> {
  for (;;) {
    const expired = await listExpiredArtifacts(deps.db, deps.hostId, now, EXPIRED_AT_ONCE)
    for (const { tenantId, id } of expired) {
      await removeArtifacts(deps, tenantId, id)
      await forgetArtifacts(deps.db, tenantId, id)
    }
    if (expired.length < EXPIRED_AT_ONCE) break
  }
  for (const tenantId of await foldersIn(join(deps.dataDir, 'artifacts'))) await removeUnknown(deps, tenantId)
}

async function removeUnknown(deps: Store, tenantId: string): Promise<void> {
  const ids = await foldersIn(join(deps.dataDir, 'artifacts', tenantId))
  for (let start = 0; start < ids.length; start += EXPIRED_AT_ONCE) {
    const some = ids.slice(start, start + EXPIRED_AT_ONCE)
    const kept = await listKeptIds(deps.db, tenantId, some)
    for (const id of some) if (!kept.has(id) && UUID.test(id)) await removeArtifacts(deps, tenantId, id)
  }
}

const foldersIn = async (folder: string): Promise<string[]> =>
  readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
