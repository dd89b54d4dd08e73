/** A thread in which trees are walked, files hashed and manifests read, with calls that wait. One task at a time. */
import { parentPort, workerData } from 'node:worker_threads'
import { armFaultPoint } from '../fault-point.ts'
import { diffWorkspaces, getFile, type Listing, listWorkspace } from './browse.ts'
import { toFault } from './checkpoint-fault.ts'
import { blobPath, hasBlobSync, readBlobSync } from './local-blobs.ts'
import { blobsOf } from './manifest.ts'
import type { FileEntry } from './manifest-entry.ts'
import { readManifest } from './read-manifest.ts'
import { type RestoreTask, restoreFolders } from './restore-folders.ts'
import { type SavedFolders, type SaveTask, saveFolders } from './save-folders.ts'
import type { ThreadReply } from './thread-pool.ts'

export interface ThreadOptions {
  dir: string
  sync: boolean
  faultPoint: string | undefined
}

interface ManifestTask {
  tenantId: string
  manifest: string
}

export type CheckpointTask =
  | ({ kind: 'save' } & SaveTask)
  | ({ kind: 'restore' } & RestoreTask)
  | ({ kind: 'list'; path: string | undefined; limit: number } & ManifestTask)
  | ({ kind: 'find'; path: string } & ManifestTask)
  | { kind: 'diff'; tenantId: string; from: string; to: string; limit: number }
  | ({ kind: 'missing'; verifies: boolean } & ManifestTask)
  | ({ kind: 'hashes'; except: string | undefined } & ManifestTask)

export interface CheckpointResults {
  save: SavedFolders
  restore: undefined
  list: Listing
  find: FileEntry
  diff: ReturnType<typeof diffWorkspaces>
  missing: string[]
  hashes: string[]
}

if (parentPort) serve(parentPort, workerData as ThreadOptions)

function serve(port: NonNullable<typeof parentPort>, options: ThreadOptions): void {
  armFaultPoint(options.faultPoint)
  port.on('message', (task: CheckpointTask) => {
    port.postMessage(answer(options, task))
  })
}

function answer(options: ThreadOptions, task: CheckpointTask): ThreadReply<unknown> {
  try {
    return { result: run(options, task) }
  } catch (error) {
    const { code, message, cause } = toFault(error, 'The checkpoint')
    return { fault: { code, message, ...(cause instanceof Error && { detail: cause.message }) } }
  }
}

function run(options: ThreadOptions, task: CheckpointTask): CheckpointResults[CheckpointTask['kind']] {
  const read = (manifest: string) => readManifest(options.dir, task.tenantId, manifest)
  switch (task.kind) {
    case 'save':
      return saveFolders(options, task)
    case 'restore':
      return void restoreFolders(options, task)
    case 'list':
      return listWorkspace(read(task.manifest), task.path, task.limit)
    case 'find':
      return getFile(read(task.manifest), task.path)
    case 'diff':
      return diffWorkspaces(read(task.from), read(task.to), task.limit)
    case 'missing':
      return missingBlobs(options, task)
    case 'hashes':
      return hashesOf(options, task)
  }
}

/** Of a manifest that is missing or damaged, nothing more can be told. */
function missingBlobs(
  { dir }: ThreadOptions,
  { tenantId, manifest, verifies }: ManifestTask & { verifies: boolean },
): string[] {
  if (readBlobSync(dir, tenantId, manifest) === undefined) return [manifest]
  const has = (hash: string, length: number) =>
    verifies
      ? readBlobSync(dir, tenantId, hash)?.length === length
      : hasBlobSync(blobPath(dir, tenantId, hash), length)
  const blobs = blobsOf(readManifest(dir, tenantId, manifest))
  return Array.from(blobs)
    .filter(([hash, length]) => !has(hash, length))
    .map(([hash]) => hash)
}

function hashesOf({ dir }: ThreadOptions, task: ManifestTask & { except: string | undefined }): string[] {
  const hashes = new Set(blobsOf(readManifest(dir, task.tenantId, task.manifest)).keys())
  const known = task.except === undefined ? [] : blobsOf(readManifest(dir, task.tenantId, task.except)).keys()
  for (const hash of known) hashes.delete(hash)
  return [...hashes, task.manifest]
}
