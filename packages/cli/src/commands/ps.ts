import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { SANDBOX_HEADER, sandboxRows } from '../sandbox-table.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'

export function addPs(program: Command, run: Run): void {
  addPaging(
    addCommand(program, 'ps', 'List live sandboxes and what they use.', [
      'ash ps',
      'ash ps --session $id',
      'ash ps --json | jq ".sandboxes[].usage"',
    ]).option('--session <id>', 'only that of this session'),
  ).action(run(ps))
}

async function ps(
  { client, output, signal }: Context,
  { session, limit, cursor }: PagingOptions & { session?: string },
): Promise<void> {
  const page = await client.sandboxes.list({ session, limit, cursor, signal })
  if (output.isJson) return output.event(page)
  if (page.sandboxes.length === 0)
    output.note('No sandbox is alive. The next session, or the next run, makes one')
  else output.table(SANDBOX_HEADER, sandboxRows(page.sandboxes, Date.now()))
  showMore(output, page.nextCursor)
}
