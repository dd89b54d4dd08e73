import { readFile, writeFile } from 'node:fs/promises'
import { buffer } from 'node:stream/consumers'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { green } from '../output.ts'
import { toLimit } from './paging.ts'

export function addFiles(session: Command, run: Run): void {
  const files = addCommand(session, 'files', "See and change files in the session's workspace.", [
    'ash session files $id',
    'ash session files read $id report.md',
  ])
  // The default: `ash session files <id>` lists.
  const listing = files.command('list <id> [path]', { isDefault: true })
  listing
    .description('List the files.')
    .option('--limit <count>', 'at most so many', toLimit)
    .option('--checkpoint <id>', 'as they were then; default as they are now')
    .addHelpText('after', '\nExamples:\n  $ ash session files $id\n  $ ash session files list $id src --json')
    .action(run(list))
  addCommand(files, 'read <id> <path>', 'Print a file, or save it.', [
    'ash session files read $id report.md',
    'ash session files read $id chart.png --output chart.png',
    'ash session files read $id report.md --checkpoint $checkpoint',
  ])
    .option('-o, --output <file>', 'write it there')
    .option('--checkpoint <id>', 'as it was then; default as it is now')
    .action(run(read))
  addCommand(files, 'write <id> <path> [from]', 'Write a file from a local one or from stdin.', [
    'ash session files write $id data/input.csv input.csv',
    'echo hello | ash session files write $id hello.txt',
  ]).action(run(write))
  addCommand(files, 'delete <id> <path>', 'Delete a file.', [
    'ash session files delete $id data/input.csv',
  ]).action(run(remove))
}

async function list(
  { client, output, signal }: Context,
  id: string,
  path: string | undefined,
  { limit, checkpoint: checkpointId }: { limit?: number; checkpoint?: string },
): Promise<void> {
  const page = await client.files.list(id, { path, limit, checkpointId, signal })
  if (output.isJson) return output.event(page)
  const rows = page.files.map((file) => [file.path, file.type, String(file.size), file.modifiedAt])
  if (rows.length === 0) output.note('No files')
  else output.table(['PATH', 'TYPE', 'BYTES', 'MODIFIED'], rows)
  if (page.source === 'checkpoint' && checkpointId === undefined)
    output.note('Read from a checkpoint: they are put in place with their first use')
  if (page.truncated) output.note('There are more: name a folder or raise --limit')
}

async function read(
  { client, output, signal }: Context,
  id: string,
  path: string,
  options: { output?: string; checkpoint?: string },
): Promise<void> {
  const request = { checkpointId: options.checkpoint, signal }
  if (options.output !== undefined) {
    const content = await client.files.read(id, path, request)
    await writeFile(options.output, content)
    const { length: size } = content
    return output.result({ path, size, savedTo: options.output }, [green('✓'), ` Saved to ${options.output}`])
  }
  if (output.isJson) output.event({ path, content: await client.files.readText(id, path, request) })
  else output.data(await client.files.read(id, path, request))
}

async function write(
  { client, output, signal }: Context,
  id: string,
  path: string,
  from: string | undefined,
): Promise<void> {
  const isStdin = from === undefined || from === '-'
  const content = isStdin ? await buffer(process.stdin) : await readFile(from)
  const written = await client.files.write(id, path, new Uint8Array(content), { signal })
  output.result(written, [green('✓'), ` Wrote ${written.path}, ${written.size} bytes`])
}

async function remove({ client, output, signal }: Context, id: string, path: string): Promise<void> {
  await client.files.delete(id, path, { signal })
  output.result({ deleted: path }, [green('✓'), ` Deleted ${path}`])
}
