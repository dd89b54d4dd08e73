import type { SessionDirs } from '../../session-dirs.ts'

/** Files, folders and links that a session may have for each MB of its disk: one for every 16 KB. */
export const INODES_PER_MB = 64

/** `full`: the kernel refuses further writes. `exceeded`: nothing does, so the sandbox has to be stopped. */
export type DiskState = 'ok' | 'full' | 'exceeded'

export interface AcquireOptions {
  /** For work that is over soon: a disk made ahead of time where there is one, and more are made for the next. */
  isBrief?: boolean
}

/** One way of holding a session's workspace and home, together, to their share of the disk. */
export interface DiskBackend {
  readonly name: 'loop' | 'polled'
  readonly enforcement: 'hard' | 'polled'
  /** Gives a session its disk, made where there is none yet, and keeps it until `release`. */
  acquire(dirs: SessionDirs, diskMb: number, options?: AcquireOptions): Promise<void>
  /** The sandbox is gone; the files stay. */
  release(dirs: SessionDirs): void
  /** Makes the files of a session visible to the server, also without a sandbox. Safe to call at any time. */
  ensureMounted(dirs: SessionDirs): Promise<void>
  stateOf(dirs: SessionDirs, diskMb: number): Promise<DiskState>
  /** Removes a session's folders and whatever holds them. Only when its sandbox is gone. */
  remove(dirs: SessionDirs): Promise<void>
  /** When no sandbox is left: the files stay, nothing else does. */
  close(): Promise<void>
}
