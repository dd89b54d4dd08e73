import type { CheckpointDiff } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { bold, dim, green, type Part } from '../output.ts'
import { whileWaiting } from '../progress.ts'
import { countOf, sizeOf } from '../quantities.ts'
import { toSafeLine } from '../terminal-text.ts'
import { addPaging, type PagingOptions, showMore, toLimit } from './paging.ts'

export function addCheckpoints(session: Command, run: Run): void {
  const checkpoints = addCommand(session, 'checkpoints', 'See and delete the checkpoints of a session.', [
    'ash session checkpoints $id',
    'ash session checkpoints delete $id $checkpoint',
  ])
  // The default: `ash session checkpoints <id>` lists.
  addPaging(checkpoints.command('list <id>', { isDefault: true }))
    .description('List the checkpoints, newest first.')
    .addHelpText(
      'after',
      '\nExamples:\n  $ ash session checkpoints $id\n  $ ash session checkpoints list $id --limit 5 --json',
    )
    .action(run(list))
  addCommand(checkpoints, 'delete <id> <checkpoint>', 'Delete one that the session no longer stands on.', [
    'ash session checkpoints delete $id $checkpoint',
  ]).action(run(remove))
  addCommand(session, 'checkpoint <id>', 'Save a session now and print the id of the checkpoint.', [
    'checkpoint=$(ash session checkpoint $id)',
  ]).action(run(create))
  addCommand(session, 'diff <id> <from> [to]', 'Show what changed between two checkpoints.', [
    'ash session diff $id $before $after',
    'ash session diff $id $before        # until where it stands',
  ])
    .option('--limit <count>', 'at most so many paths', toLimit)
    .action(run(diff))
}

async function list({ client, output, signal }: Context, id: string, options: PagingOptions): Promise<void> {
  const page = await client.checkpoints.list(id, { ...options, signal })
  if (output.isJson) return output.event(page)
  const rows = page.checkpoints.map((checkpoint) => [
    checkpoint.isCurrent ? `${checkpoint.id} *` : checkpoint.id,
    String(checkpoint.seq),
    checkpoint.reason,
    String(checkpoint.files),
    String(checkpoint.bytes),
    checkpoint.createdAt,
  ])
  if (rows.length === 0) output.note(`No checkpoints yet. Make one with: ash session checkpoint ${id}`)
  else output.table(['ID', 'SEQ', 'REASON', 'FILES', 'BYTES', 'CREATED'], rows)
  showMore(output, page.nextCursor)
}

async function create({ client, output, signal }: Context, id: string): Promise<void> {
  const checkpoint = await whileWaiting(output, 'Saving', client.checkpoints.create(id, { signal }))
  output.result({ checkpoint }, [checkpoint.id])
  if (output.isJson) return
  output.note(dim(`${countOf(checkpoint.files, 'file')}, ${sizeOf(checkpoint.bytes)}`))
}

async function remove({ client, output, signal }: Context, id: string, checkpointId: string): Promise<void> {
  await client.checkpoints.delete(id, checkpointId, { signal })
  output.result({ deleted: checkpointId }, [green('✓'), ' Deleted ', bold(checkpointId)])
}

async function diff(
  context: Context,
  id: string,
  from: string,
  given: string | undefined,
  { limit }: { limit?: number },
): Promise<void> {
  const { client, output, signal } = context
  const to = given ?? (await currentCheckpoint(context, id))
  const found = await client.checkpoints.diff(id, { from, to, limit, signal })
  output.result({ diff: found }, ...toLines(found))
  if (!output.isJson && found.truncated) output.note('There are more: raise --limit')
}

async function currentCheckpoint({ client, signal }: Context, id: string): Promise<string> {
  const { checkpointId } = await client.sessions.get(id, { signal })
  if (checkpointId !== undefined) return checkpointId
  throw new CliError(EXIT.notFound, 'The session has no checkpoint', `Make one: ash session checkpoint ${id}`)
}

function toLines({ added, changed, removed, turns }: CheckpointDiff): Part[][] {
  const marked = [
    ...added.map((entry) => ({ ...entry, mark: '+' })),
    ...changed.map((entry) => ({ ...entry, mark: '~' })),
    ...removed.map((entry) => ({ ...entry, mark: '-' })),
  ].sort((one, other) => (one.path < other.path ? -1 : 1))
  const summary = [
    `${added.length} added, ${changed.length} changed, ${removed.length} removed`,
    `${countOf(turns.length, 'turn')} between`,
  ]
  return [
    ...marked.map(({ mark, path, type }) => [
      `${mark} ${toSafeLine(path)}${type === 'directory' ? '/' : ''}`,
    ]),
    [dim(summary.join('; '))],
  ]
}
