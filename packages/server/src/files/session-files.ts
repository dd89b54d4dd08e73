import { CheckpointId, SessionId } from '@ash-ai/shared'
import { z } from 'zod'
import type { FileSource } from './checkpoint-files.ts'
import type { Workspace } from './workspace-folder.ts'

/** The files of the sessions of a tenant. Throws session_not_found, checkpoint_not_found and the like. */
export interface SessionFiles {
  /** To be read: as they are, or as a checkpoint has them. */
  open(tenantId: string, sessionId: string, checkpointId?: string): Promise<FileSource>
  /** Lets `write` change the folder. Until it is done nobody exchanges the files for others. */
  change<Result>(
    tenantId: string,
    sessionId: string,
    write: (workspace: Workspace) => Promise<Result>,
  ): Promise<Result>
}

export interface FileRouteDeps extends SessionFiles {
  /** Signs links to files. */
  linkKey: Buffer
}

export const OfSession = z.object({ id: SessionId })
export const OfFile = z.object({ id: SessionId, '*': z.string().describe('Path in the workspace') })
export const AsOf = z.object({
  checkpointId: CheckpointId.optional().describe('As the files were then; default as they are'),
})
export const Written = z.object({ path: z.string(), size: z.number().int() })
export type Written = z.infer<typeof Written>
export const tags = ['files']
