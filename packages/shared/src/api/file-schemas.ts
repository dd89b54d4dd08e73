import { z } from 'zod'
import { MAX_FILES_PER_REQUEST } from '../constants.ts'
import { FileInput } from './agent-schemas.ts'
import { IsoTime, RelativePath } from './common-schemas.ts'

export const FileEntry = z
  .object({
    path: z.string(),
    type: z.enum(['file', 'directory', 'link', 'other']),
    size: z.number().int(),
    modifiedAt: IsoTime,
  })
  .meta({ id: 'FileEntry' })
export type FileEntry = z.infer<typeof FileEntry>

/** `true` or `false` in a query. */
const flag = (otherwise: 'true' | 'false') =>
  z
    .enum(['true', 'false'])
    .default(otherwise)
    .transform((text) => text === 'true')
const Folder = RelativePath.optional().describe('Folder to look in; default the whole workspace')
const Limit = z.coerce.number().int().min(1).max(10_000).default(1000)

export const FileList = z.object({
  path: Folder,
  recursive: flag('true').describe('Also what is in folders below'),
  limit: Limit,
  cursor: z.string().min(1).max(8192).optional().describe('`nextCursor` of the page before'),
  watch: flag('false').describe('Instead of a list: what changes from now on, as server-sent events'),
})

export const FileDelete = z.object({
  recursive: flag('true').describe('A folder with all it holds; otherwise only one that holds nothing'),
})

export const FileSearch = z.object({
  query: z
    .string()
    .min(1)
    .max(256)
    .describe(
      '`*`, `?` and `**` as in a shell, or part of a name; with a `/` in it the whole path is compared',
    ),
  path: Folder,
  limit: Limit,
})

export const FileStat = FileEntry.extend({
  mode: z.string().optional().describe('Permission bits, as in `0644`; not of a file in a checkpoint'),
  etag: z.string().optional().describe('Of a file: for If-Match, If-None-Match and If-Range'),
  linkTarget: z.string().optional().describe('What a link holds; it is not followed'),
}).meta({ id: 'FileStat' })
export type FileStat = z.infer<typeof FileStat>

/** No set-user-id, set-group-id or sticky bit. */
export const FileMode = z
  .string()
  .regex(/^0?[0-7]{3}$/, 'must be permission bits such as "0644" or "755"')
  .meta({ example: '0644' })

export const FolderCreate = z
  .strictObject({
    path: RelativePath,
    parents: z.boolean().default(false).describe('Make those above it, too; it may exist already'),
  })
  .meta({ id: 'FolderCreate' })
export type FolderCreate = z.input<typeof FolderCreate>

/** Of a move or a copy. */
export const FileTransfer = z
  .strictObject({
    from: RelativePath,
    to: RelativePath.describe('The new path itself, not the folder to put it in'),
    overwrite: z
      .boolean()
      .default(false)
      .describe('Replace a file that is there. A folder is never replaced'),
  })
  .meta({ id: 'FileTransfer' })
export type FileTransfer = z.input<typeof FileTransfer>

export const FileModeChange = z
  .strictObject({ path: RelativePath, mode: FileMode })
  .meta({ id: 'FileModeChange' })
export type FileModeChange = z.infer<typeof FileModeChange>

const MAX_LINK_SECONDS = 7 * 24 * 3600
export const FileLinkCreate = z
  .strictObject({
    path: RelativePath,
    expiresIn: z
      .number()
      .int()
      .min(1)
      .max(MAX_LINK_SECONDS)
      .default(3600)
      .describe('Seconds, at most 7 days'),
    method: z.enum(['GET', 'PUT']).default('GET'),
  })
  .meta({ id: 'FileLinkCreate' })
export type FileLinkCreate = z.input<typeof FileLinkCreate>

export const FileLink = z.object({ url: z.string(), expiresAt: IsoTime }).meta({ id: 'FileLink' })
export type FileLink = z.infer<typeof FileLink>

/** One event of a watch. */
export interface FileChange {
  type: 'created' | 'changed' | 'deleted'
  path: string
  size: number
}

/** Of one copy. */
export const MAX_COPY_ENTRIES = 10_000
export const MAX_COPY_BYTES = 2 * 1024 ** 3

export const FilesWrite = z
  .strictObject({ files: z.array(FileInput).min(1).max(MAX_FILES_PER_REQUEST) })
  .meta({ id: 'FilesWrite' })
export type FilesWrite = z.infer<typeof FilesWrite>

export const FileText = z
  .object({ path: z.string(), content: z.string(), size: z.number().int() })
  .meta({ id: 'FileText' })
