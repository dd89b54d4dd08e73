import { basename } from 'node:path'
import type { FileEntry, FileStat } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { toDuration } from '../durations.ts'
import { dim, green, type Part } from '../output.ts'
import { sizeOf } from '../quantities.ts'
import { addTransfers } from './files-transfer.ts'
import { toLimit } from './paging.ts'

/** Files of a session's workspace, in the words of a shell. */
export function addFiles(program: Command, run: Run): void {
  const files = addCommand(program, 'files', "See, change and transfer files in a session's workspace.", [
    'ash files ls $session',
    'ash files put $session data.csv',
    'ash files get $session report.pdf',
  ])
  addLooking(files, run)
  addTransfers(files, run)
  addChanging(files, run)
}

function addLooking(files: Command, run: Run): void {
  addCommand(files, 'ls <session> [path]', 'List a folder.', [
    'ash files ls $session',
    'ash files ls $session src --recursive --json',
  ])
    .option('-r, --recursive', 'also what is in folders below')
    .option('--limit <count>', 'at most so many', toLimit)
    .option('--checkpoint <id>', 'as it was then; default as it is now')
    .action(run(list))
  addCommand(files, 'stat <session> <path>', 'Show type, size, mode and etag.', [
    'ash files stat $session run.sh',
  ]).action(run(stat))
  addCommand(files, 'find <session> <pattern> [path]', 'Find files by name: * ? ** or a part of it.', [
    "ash files find $session '*.py'",
    "ash files find $session 'src/**/test_*' --json",
  ])
    .option('--limit <count>', 'at most so many', toLimit)
    .action(run(find))
  addCommand(files, 'watch <session> [path]', 'Print what changes, until Ctrl-C.', [
    'ash files watch $session',
    'ash files watch $session out --json',
  ]).action(run(watch))
  addCommand(files, 'link <session> <path>', 'Make a link that needs no key.', [
    'ash files link $session report.pdf',
    'ash files link $session upload.csv --put --expires 10m',
  ])
    .option('--expires <time>', 'how long it works, such as 10m or 2d; at most 7d', toDuration, 3_600_000)
    .option('--put', 'to write the file instead of reading it')
    .action(run(link))
}

function addChanging(files: Command, run: Run): void {
  addCommand(files, 'mkdir <session> <path>', 'Make a folder.', ['ash files mkdir $session -p data/raw'])
    .option('-p, --parents', 'also those above it; it may exist already')
    .action(run(makeFolder))
  addCommand(files, 'mv <session> <from> <to>', 'Move or rename a file or a folder.', [
    'ash files mv $session draft.md report.md',
  ])
    .option('-f, --force', 'replace a file that is there')
    .action(run((context, ...args: TransferArgs) => transfer(context, 'move', args)))
  addCommand(files, 'cp <session> <from> <to>', 'Copy a file or a folder.', [
    'ash files cp $session src src-backup',
  ])
    .option('-f, --force', 'replace a file that is there')
    .action(run((context, ...args: TransferArgs) => transfer(context, 'copy', args)))
  addCommand(files, 'rm <session> <path>', 'Delete a file, a link or an empty folder.', [
    'ash files rm $session data.csv',
    'ash files rm $session -r data',
  ])
    .option('-r, --recursive', 'a folder with all it holds')
    .action(run(remove))
  addCommand(files, 'chmod <session> <mode> <path>', 'Change permission bits.', [
    'ash files chmod $session 755 run.sh',
  ]).action(run(changeMode))
}

interface ListFlags {
  recursive?: boolean
  limit?: number
  checkpoint?: string
}

async function list(
  { client, output, signal }: Context,
  session: string,
  path: string | undefined,
  { recursive = false, limit, checkpoint: checkpointId }: ListFlags,
): Promise<void> {
  const page = await client.files.list(session, { path, recursive, limit, checkpointId, signal })
  if (output.isJson) return output.event(page)
  showEntries({ output }, page)
}

async function find(
  { client, output, signal }: Context,
  session: string,
  pattern: string,
  path: string | undefined,
  { limit }: { limit?: number },
): Promise<void> {
  const found = await client.files.search(session, pattern, { path, limit, signal })
  if (output.isJson) return output.event(found)
  showEntries({ output }, found)
}

function showEntries(
  { output }: Pick<Context, 'output'>,
  { files, truncated }: { files: FileEntry[]; truncated: boolean },
): void {
  const rows = files.map((file) => [file.path, file.type, sizeOf(file.size), file.modifiedAt])
  if (rows.length === 0) output.note('No files')
  else output.table(['PATH', 'TYPE', 'SIZE', 'MODIFIED'], rows)
  if (truncated) output.note('There are more: name a folder or raise --limit')
}

async function stat({ client, output, signal }: Context, session: string, path: string): Promise<void> {
  const found = await client.files.stat(session, path, { signal })
  const line = (name: string, value: string | undefined): Part[][] =>
    value === undefined ? [] : [[dim(`${name.padEnd(9)}`), value]]
  output.result(
    found,
    ...line('path', found.path),
    ...line('type', found.type),
    ...line('size', sizeOf(found.size)),
    ...line('mode', found.mode),
    ...line('modified', found.modifiedAt),
    ...line('etag', found.etag),
    ...line('target', found.linkTarget),
  )
}

async function watch({ client, output, signal }: Context, session: string, path?: string): Promise<void> {
  for await (const event of client.files.watch(session, { path, signal })) {
    if (output.isJson) output.event(event)
    else if (event.type === 'ready') output.note(dim(`Watching ${event.entries} entries. Ctrl-C ends it`))
    else if (event.type === 'truncated')
      output.note(`There are more than the ${event.limit} entries looked at`)
    else output.line(dim(event.type.padEnd(9)), event.path, dim(`  ${sizeOf(event.size)}`))
  }
}

async function link(
  { client, output, signal }: Context,
  session: string,
  path: string,
  { expires: expiresMs, put }: { expires: number; put?: true },
): Promise<void> {
  const expiresIn = Math.ceil(expiresMs / 1000)
  const made = await client.files.link(session, { path, expiresIn, method: put ? 'PUT' : 'GET' }, { signal })
  output.result(made, [made.url])
  if (!output.isJson) output.note(dim(`Works until ${made.expiresAt}, for whoever has it`))
}

async function makeFolder(
  { client, output, signal }: Context,
  session: string,
  path: string,
  { parents }: { parents?: true },
): Promise<void> {
  done(output, await client.files.mkdir(session, path, { parents: parents === true, signal }), 'Made')
}

type TransferArgs = [session: string, from: string, to: string, flags: { force?: true }]

/** Into a folder where `to` ends with a slash, as in a shell. */
async function transfer(
  { client, output, signal }: Context,
  action: 'move' | 'copy',
  [session, from, to, { force }]: TransferArgs,
): Promise<void> {
  const target = to.endsWith('/') ? to + basename(from) : to
  const request = { from, to: target, overwrite: force === true }
  const made = await client.files[action](session, request, { signal })
  done(output, made, action === 'move' ? 'Moved to' : 'Copied to')
}

async function remove(
  { client, output, signal }: Context,
  session: string,
  path: string,
  { recursive = false }: { recursive?: boolean },
): Promise<void> {
  await client.files.delete(session, path, { recursive, signal })
  output.result({ deleted: path }, [green('✓'), ` Deleted ${path}`])
}

async function changeMode(
  { client, output, signal }: Context,
  session: string,
  mode: string,
  path: string,
): Promise<void> {
  const changed = await client.files.chmod(session, path, mode, { signal })
  done(output, changed, `Mode ${changed.mode ?? mode} of`)
}

const done = (output: Context['output'], stat: FileStat, what: string) =>
  output.result(stat, [green('✓'), ` ${what} ${stat.path}`])
