import { z } from 'zod'
import { IsoTime, Paging } from './common-schemas.ts'

export const CheckpointId = z.uuid()

/** Why a checkpoint was made. */
export const CHECKPOINT_REASONS = ['turn', 'pause', 'request', 'fork', 'rollback', 'upload'] as const

/** Files and conversation of a session, as they were after entry `seq` of its log. */
export const Checkpoint = z
  .object({
    id: z.string(),
    sessionId: z.string(),
    seq: z.number().int().describe('The last entry of the log that it covers'),
    turnId: z.string().optional().describe('The turn that it follows'),
    reason: z.enum(CHECKPOINT_REASONS),
    files: z.number().int().describe('Regular files, in workspace and home'),
    bytes: z.number().int().describe('Their length in all; what is stored is shared and usually less'),
    isCurrent: z.boolean().describe('The files of the session descend from this one'),
    isUploaded: z.boolean().describe('The remote store has it, where there is one'),
    createdAt: IsoTime,
  })
  .meta({ id: 'Checkpoint' })
export type Checkpoint = z.infer<typeof Checkpoint>

export const CheckpointList = Paging
export type CheckpointList = z.input<typeof CheckpointList>

export const ForkRequest = z
  .strictObject({
    checkpointId: CheckpointId.optional().describe('Default: the session as it is now'),
  })
  .meta({ id: 'Fork' })
export type ForkRequest = z.infer<typeof ForkRequest>

export const RollbackRequest = z.strictObject({ checkpointId: CheckpointId }).meta({ id: 'Rollback' })
export type RollbackRequest = z.infer<typeof RollbackRequest>

export const DiffQuery = z.object({
  from: CheckpointId,
  to: CheckpointId,
  limit: z.coerce.number().int().min(1).max(10_000).default(1000).describe('Paths in all'),
})
export type DiffQuery = z.input<typeof DiffQuery>

const DiffEntry = z.object({
  path: z.string(),
  type: z.enum(['file', 'directory', 'link']),
  size: z.number().int(),
})

/** What lies between two checkpoints of a session, in its workspace and in its log. */
export const CheckpointDiff = z
  .object({
    from: z.string(),
    to: z.string(),
    added: z.array(DiffEntry),
    changed: z.array(DiffEntry).describe('Content, type, target or mode; a new time alone is no change'),
    removed: z.array(DiffEntry),
    truncated: z.boolean().describe('There are more paths than were asked for'),
    turns: z.array(z.object({ turnId: z.string(), seq: z.number().int() })),
  })
  .meta({ id: 'CheckpointDiff' })
export type CheckpointDiff = z.infer<typeof CheckpointDiff>

/** What a session had to do to become active. */
export const ResumePath = z
  .enum(['none', 'warm', 'cold_local', 'cold_remote'])
  .describe(
    '`none`: it was active. `warm`: its sandbox was thawed. `cold_local`: a new sandbox on the files of this host. ' +
      '`cold_remote`: files were fetched from the remote store',
  )
export type ResumePath = z.infer<typeof ResumePath>

export const GarbageRequest = z
  .strictObject({ dryRun: z.boolean().optional() })
  .meta({ id: 'GarbageRequest' })
export type GarbageRequest = z.infer<typeof GarbageRequest>

const Swept = z.object({ blobs: z.number().int(), bytes: z.number().int() })

/** What no checkpoint refers to any more. */
export const GarbageReport = z
  .object({
    dryRun: z.boolean(),
    local: Swept.describe('Deleted from this host, or what would be'),
    remote: Swept.optional().describe('Deleted from the remote store, or what would be'),
    kept: Swept.describe('Still in use on this host'),
  })
  .meta({ id: 'GarbageReport' })
export type GarbageReport = z.infer<typeof GarbageReport>

export const WorkspaceUpload = z.object({
  replace: z
    .enum(['true', 'false'])
    .default('false')
    .transform((value) => value === 'true')
    .describe('The archive becomes the whole workspace; otherwise it is laid over what is there'),
})

/** In the log, when a checkpoint is stored. */
export interface CheckpointEventData {
  id: string
  seq: number
  /** The turn that it follows. */
  turnId?: string
  reason: (typeof CHECKPOINT_REASONS)[number]
  files: number
  bytes: number
}
