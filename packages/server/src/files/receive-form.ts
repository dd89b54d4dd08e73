import { AshError, isRelativePath } from '@ash-ai/shared'
import type { FastifyRequest } from 'fastify'
import { maxBytesIn } from './receive-file.ts'
import type { Written } from './session-files.ts'
import type { Workspace } from './workspace-folder.ts'
import { type StagedFile, stageFile } from './write-file.ts'

/** Writes the files of a form below `folder`. The first is put in its place when the last has arrived. */
export async function receiveForm(
  workspace: Workspace,
  folder: string | undefined,
  request: Pick<FastifyRequest, 'isMultipart' | 'parts'>,
): Promise<Written[]> {
  if (!request.isMultipart()) throw new AshError('unsupported_media_type', 'Send multipart/form-data')
  await using stack = new AsyncDisposableStack()
  const staged: { path: string; file: StagedFile }[] = []
  let bytesLeft = maxBytesIn(workspace)
  const prefix = folder === undefined ? '' : `${folder}/`
  for await (const part of fromForm(request.parts())) {
    if (part.type !== 'file') throw invalid(part.fieldname, 'is no file; give it a filename')
    const path = prefix + nameOf(part)
    const file = await stageFile(workspace, path, fromForm(part.file), { maxBytes: bytesLeft })
    stack.use(file)
    bytesLeft -= file.size
    staged.push({ path, file })
  }
  if (staged.length === 0) throw invalid('', 'The form holds no file')
  for (const { file } of staged) await file.commit()
  return staged.map(({ path, file }) => ({ path, size: file.size }))
}

/** A form that is cut off or malformed is the client's fault, which only the text of the error says. */
async function* fromForm<Part>(parts: AsyncIterable<Part>): AsyncGenerator<Part> {
  try {
    yield* parts
  } catch (error) {
    throw isAboutForm(error) ? invalid('', `The form is broken: ${error.message}`) : error
  }
}

/** Errors of the file system and of Fastify have a code. */
const isAboutForm = (error: unknown): error is Error => error instanceof Error && !('code' in error)

/** A name alone: where it goes is said by the request, not by whoever named the file. */
function nameOf({ fieldname, filename }: { fieldname: string; filename: string | undefined }): string {
  if (!isRelativePath(fieldname)) throw invalid(fieldname, 'is not allowed as the name of a field')
  if (filename === undefined || !isRelativePath(filename) || filename.includes('/'))
    throw invalid(fieldname, `"${filename ?? ''}" is not the name of a file, without folders`)
  return filename
}

const invalid = (field: string, message: string) =>
  new AshError('validation_failed', field === '' ? message : `${field}: ${message}`, {
    details: [{ path: field, message }],
  })
