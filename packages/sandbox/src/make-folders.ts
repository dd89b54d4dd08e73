import type { Layer } from './layer.ts'
import type { AcquireOptions, DiskBackend } from './limits/disk/disk-backend.ts'
import type { ResourceLimits } from './limits/resource-limits.ts'
import type { Owner } from './provider.ts'
import { createSessionDirs, type SessionDirs } from './session-dirs.ts'
import { asDiskFailure } from './start-failure.ts'

interface FolderRequest {
  dirs: SessionDirs
  agentDir?: string | undefined
  layer?: Layer | undefined
  owner: Owner | undefined
  limits: ResourceLimits
}

/** A session's folders on a disk of its own, which is held until somebody releases it. */
export async function makeFolders(
  disk: DiskBackend,
  request: FolderRequest,
  options: AcquireOptions = {},
): Promise<void> {
  const { dirs, limits, layer, agentDir, owner } = request
  await disk.acquire(dirs, limits.diskMb, options).catch((error: unknown) => {
    throw asDiskFailure(error)
  })
  await createSessionDirs(dirs, layer ?? agentDir, owner).catch((error: unknown) => {
    disk.release(dirs)
    throw error
  })
}
