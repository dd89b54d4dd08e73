import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { dim, green } from '../output.ts'
import { whileWaiting, withProgress } from '../progress.ts'
import { sizeOf } from '../quantities.ts'
import { saveFile } from '../save-file.ts'

export function addWorkspace(session: Command, run: Run): void {
  addCommand(session, 'download <id>', 'Save the workspace as a tar.gz archive.', [
    'ash session download $id',
    'ash session download $id --output before.tar.gz --checkpoint $checkpoint',
    'ash session download $id --output - | tar -tz',
  ])
    .option('-o, --output <file>', 'write it there, "-" for stdout; default <id>.tar.gz')
    .option('--checkpoint <id>', 'as it was then; default as it is now')
    .action(run(download))
  addCommand(session, 'upload <id> <archive>', 'Unpack a tar or tar.gz archive into the workspace.', [
    'ash session upload $id project.tar.gz',
    'ash session upload $id project.tar.gz --replace',
    'tar -cz -C project . | ash session upload $id -',
  ])
    .option('--replace', 'the archive becomes the whole workspace; otherwise it is laid over what is there')
    .addHelpText('after', '\nEither all of it is there afterwards, or nothing has changed.')
    .action(run(upload))
}

interface DownloadFlags {
  output?: string
  checkpoint?: string
}

async function download(context: Context, id: string, flags: DownloadFlags): Promise<void> {
  const { client, output } = context
  const target = flags.output ?? `${id}.tar.gz`
  if (target === '-') checkStdout(context)
  // A file that cannot be written must not leave the connection open.
  const ending = new AbortController()
  const signal = AbortSignal.any([context.signal, ending.signal])
  try {
    const opening = client.workspace.download(id, { checkpointId: flags.checkpoint, signal })
    const parts = withProgress(await whileWaiting(output, 'Preparing', opening), output, 'Downloaded')
    if (target === '-') return await output.stream(parts)
    const size = await saveFile(parts, target)
    output.result({ savedTo: target, size }, [green('✓'), ` Saved to ${target}`, dim(`, ${sizeOf(size)}`)])
  } finally {
    ending.abort()
  }
}

function checkStdout({ output }: Context): void {
  if (!output.isJson && process.stdout.isTTY !== true) return
  const what = output.isJson ? 'With --json stdout is for JSON' : 'An archive is not for a terminal'
  throw new CliError(EXIT.usage, what, 'Name a file with --output, or pipe stdout into another program')
}

async function upload(context: Context, id: string, file: string, flags: { replace?: true }): Promise<void> {
  const { client, output, signal } = context
  const { source, size } = file === '-' ? { source: process.stdin, size: undefined } : await openArchive(file)
  const parts = withProgress(source, output, 'Uploaded', size)
  const replace = flags.replace === true
  const reply = await client.workspace.upload(id, ReadableStream.from(parts), { replace, signal })
  const verb = replace ? 'is now' : 'has taken in'
  output.result(
    reply,
    [green('✓'), ` The workspace of ${reply.session.id} ${verb} ${file === '-' ? 'what stdin held' : file}`],
    [dim(`  Checkpoint ${reply.checkpoint.id}`)],
  )
}

async function openArchive(file: string): Promise<{ source: AsyncIterable<Uint8Array>; size: number }> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
  })
  const next = `Give a tar archive; of a folder: tar -cz -C <folder> . | ash session upload <id> -`
  if (found === undefined) throw new CliError(EXIT.usage, `There is no file ${file}`, next)
  if (found.isDirectory()) throw new CliError(EXIT.usage, `${file} is a folder`, next)
  return { source: createReadStream(file), size: found.size }
}
