import type { ResumePath, Session } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { cyan, dim, green } from '../output.ts'
import { whileWaiting } from '../progress.ts'

export function addLifecycle(session: Command, run: Run): void {
  addCommand(session, 'pause <id>', 'Save a session and freeze its sandbox; it keeps its files and memory.', [
    'ash session pause $id',
  ])
    .addHelpText('after', '\nA turn under way has 30 s to end by itself, then it is interrupted.')
    .action(run(pause))
  addCommand(session, 'stop <id>', 'Pause a session and let go of its sandbox.', [
    'ash session stop $id',
  ]).action(run(stop))
  addCommand(session, 'resume <id>', 'Resume a session that is paused or failed.', [
    'ash session resume $id',
    'ash session resume $id --json | jq -r .resumed',
  ]).action(run(resume))
  addCommand(session, 'fork <id>', 'Make a new session from this one and print its id.', [
    'fork=$(ash session fork $id)',
    'ash session fork $id --checkpoint $checkpoint',
  ])
    .option('--checkpoint <id>', 'as it was then; default as it is now')
    .action(run(fork))
  addCommand(session, 'rollback <id> <checkpoint>', 'Take files and conversation back to a checkpoint.', [
    'ash session checkpoints $id',
    'ash session rollback $id $checkpoint',
  ])
    .addHelpText('after', '\nWhat was there is saved as a checkpoint first, so this can be undone.')
    .action(run(rollback))
  addCommand(session, 'end <id>', 'End a session for good.', ['ash session end $id']).action(run(end))
  addCommand(session, 'interrupt <id>', 'Stop what the agent is doing now.', [
    'ash session interrupt $id',
  ]).action(run(interrupt))
}

async function pause({ client, output, signal }: Context, id: string): Promise<void> {
  report(output, await whileWaiting(output, 'Pausing', client.sessions.pause(id, { signal })))
}

async function stop({ client, output, signal }: Context, id: string): Promise<void> {
  report(output, await whileWaiting(output, 'Stopping', client.sessions.stop(id, { signal })))
}

async function end({ client, output, signal }: Context, id: string): Promise<void> {
  report(output, await whileWaiting(output, 'Ending', client.sessions.end(id, { signal })))
}

const RESUMED: Record<ResumePath, string> = {
  none: 'it was already',
  warm: 'warm: its sandbox was kept',
  cold_local: 'cold: a new sandbox on the files of the server',
  cold_remote: 'cold: files came from the remote store',
}

async function resume({ client, output, signal }: Context, id: string): Promise<void> {
  const resuming = client.sessions.resume(id, { signal })
  const { resumed, ...session } = await whileWaiting(output, 'Resuming', resuming)
  const how = dim(` (${RESUMED[resumed]})`)
  output.result({ session, resumed }, [green('✓'), ` ${session.id} is ${session.status}`, how])
}

async function fork(
  { client, output, signal }: Context,
  id: string,
  options: CheckpointOption,
): Promise<void> {
  const from = options.checkpoint === undefined ? {} : { checkpointId: options.checkpoint }
  const session = await whileWaiting(output, 'Forking', client.sessions.fork(id, from, { signal }))
  output.result({ session }, [session.id])
  if (!output.isJson) output.note('Next: ', cyan(`ash session send ${session.id} "Hello"`))
}

async function rollback(
  { client, output, signal }: Context,
  id: string,
  checkpointId: string,
): Promise<void> {
  const rolling = client.sessions.rollback(id, { checkpointId }, { signal })
  report(output, await whileWaiting(output, 'Rolling back', rolling))
}

async function interrupt({ client, output, signal }: Context, id: string): Promise<void> {
  const reply = await client.sessions.interrupt(id, { signal })
  const waiting = reply.cancelled.length > 0 ? `; ${reply.cancelled.length} waiting cancelled` : ''
  output.result(reply, [green('✓'), ` Interrupted${waiting}`])
}

function report(output: Context['output'], session: Session): void {
  output.result({ session }, [green('✓'), ` ${session.id} is ${session.status}`])
}

interface CheckpointOption {
  checkpoint?: string
}
