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

export const FileList = z.object({
  path: RelativePath.optional().describe('Folder to list; default the whole workspace'),
  limit: z.coerce.number().int().min(1).max(10_000).default(1000),
})

export const FilesWrite = z
  .strictObject({ files: z.array(FileInput).min(1).max(MAX_FILES_PER_REQUEST) })
  .meta({ id: 'FilesWrite' })
export type FilesWrite = z.infer<typeof FilesWrite>

export const FileText = z
  .object({ path: z.string(), content: z.string(), size: z.number().int() })
  .meta({ id: 'FileText' })
