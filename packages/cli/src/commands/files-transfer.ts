import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename } from 'node:path'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { dim, green } from '../output.ts'
import { sizeOf } from '../quantities.ts'
import { saveFile } from '../save-file.ts'

const PROGRESS_MS = 200

export function addTransfers(files: Command, run: Run): void {
  addCommand(files, 'get <session> <path> [to]', 'Save a file, "-" for stdout.', [
    'ash files get $session report.pdf',
    'ash files get $session data/big.bin ./big.bin',
    'ash files get $session log.txt - | tail',
  ])
    .option('--checkpoint <id>', 'as it was then; default as it is now')
    .action(run(download))
  addCommand(files, 'put <session> <from> [path]', 'Write a local file, "-" for stdin, to the workspace.', [
    'ash files put $session data.csv',
    'ash files put $session build/run.sh bin/run.sh --mode 755',
    'tar -c src | ash files put $session - src.tar',
  ])
    .option('--mode <bits>', 'permission bits; default as the file that is replaced, else 644')
    .option('--new', 'only where no file is')
    .action(run(upload))
}

async function download(
  context: Context,
  session: string,
  path: string,
  to: string | undefined,
  { checkpoint: checkpointId }: { checkpoint?: string },
): Promise<void> {
  const { client, output } = context
  if (to === '-' && output.isJson)
    throw new CliError(EXIT.usage, 'With --json stdout is for JSON', 'Name a file to save to')
  const target = to === undefined || to.endsWith('/') ? (to ?? '') + basename(path) : to
  // A file that cannot be written must not leave the connection open.
  const ending = new AbortController()
  const signal = AbortSignal.any([context.signal, ending.signal])
  try {
    const { size } = await client.files.stat(session, path, { checkpointId, signal })
    const parts = await client.files.readStream(session, path, { checkpointId, signal })
    const shown = withRate(parts, output, 'Downloaded', size)
    if (target === '-') return await output.stream(shown)
    const saved = await saveFile(shown, target)
    const document = { path, size: saved, savedTo: target }
    output.result(document, [green('✓'), ` Saved to ${target}`, dim(`, ${sizeOf(saved)}`)])
  } finally {
    ending.abort()
  }
}

async function upload(
  { client, output, signal }: Context,
  session: string,
  from: string,
  path: string | undefined,
  flags: { mode?: string; new?: true },
): Promise<void> {
  const target = path === undefined || path.endsWith('/') ? (path ?? '') + nameOf(from) : path
  const { source, size } = from === '-' ? { source: process.stdin, size: undefined } : await openLocal(from)
  const parts = ReadableStream.from(withRate(source, output, 'Uploaded', size))
  const options = { mode: flags.mode, onlyNew: flags.new === true, signal }
  const written = await client.files.write(session, target, parts, options)
  output.result(written, [green('✓'), ` Wrote ${written.path}`, dim(`, ${sizeOf(written.size)}`)])
}

function nameOf(from: string): string {
  if (from !== '-') return basename(from)
  throw new CliError(
    EXIT.usage,
    'What stdin holds has no name',
    'Give a path: ash files put <session> - <path>',
  )
}

async function openLocal(file: string): Promise<{ source: AsyncIterable<Uint8Array>; size: number }> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
  })
  if (found === undefined) throw new CliError(EXIT.usage, `There is no file ${file}`, 'Give a local file')
  if (found.isDirectory())
    throw new CliError(
      EXIT.usage,
      `${file} is a folder`,
      'Send it as an archive: tar -cz -C <folder> . | ash session upload <id> -',
    )
  return { source: createReadStream(file), size: found.size }
}

/** The parts as they are, and on a terminal how many bytes have passed, and how fast. */
async function* withRate(
  parts: AsyncIterable<Uint8Array>,
  output: Context['output'],
  what: string,
  totalBytes: number | undefined,
): AsyncGenerator<Uint8Array> {
  const total = totalBytes === undefined ? '' : ` of ${sizeOf(totalBytes)}`
  const startedMs = performance.now()
  let bytes = 0
  let shownMs = startedMs
  for await (const part of parts) {
    yield part
    bytes += part.length
    const now = performance.now()
    if (!output.isWatched || now - shownMs < PROGRESS_MS) continue
    shownMs = now
    output.progress(`${what} ${sizeOf(bytes)}${total}, ${sizeOf((bytes / (now - startedMs)) * 1000)}/s`)
  }
}
