import type { Readable } from 'node:stream'
import type { FileListing } from './list-files.ts'
import type { Workspace } from './workspace-folder.ts'

/**
 * The workspace of a session as a checkpoint has it. It answers and fails as the folder itself would: `file_not_found`,
 * `not_a_file` for a folder that is opened, `path_invalid` for a link, or a way through a link or a file.
 */
export interface CheckpointFiles {
  /** Everything below `path`, in the order in which a folder is listed. */
  list(options: { path?: string; limit: number }): Promise<FileListing>
  /** `stream` opens what it reads, and gives exactly `size` bytes or fails. */
  open(path: string): Promise<{ size: number; modifiedAt: Date; stream: () => Readable }>
}

/** What can be read: a folder on this host, or a checkpoint. */
export type FileSource = Workspace | { checkpoint: CheckpointFiles }
