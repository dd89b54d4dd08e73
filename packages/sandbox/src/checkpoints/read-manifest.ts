import { CheckpointFault } from './checkpoint-fault.ts'
import { readBlobSync } from './local-blobs.ts'
import { decodeManifest } from './manifest.ts'
import type { Manifest } from './manifest-entry.ts'

/** From inside a thread: the manifest of a checkpoint of this host, verified. */
export function readManifest(dir: string, tenantId: string, hash: string): Manifest {
  const bytes = readBlobSync(dir, tenantId, hash)
  if (bytes === undefined) throw damaged(hash, 'it is missing or does not match its hash')
  try {
    return decodeManifest(bytes)
  } catch (error) {
    throw damaged(hash, error instanceof Error ? error.message : String(error))
  }
}

const damaged = (hash: string, reason: string) =>
  new CheckpointFault('checkpoint_damaged', `The list of files ${hash.slice(0, 12)} is damaged: ${reason}`)
