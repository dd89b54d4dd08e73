import type { Session, SessionStatus } from '@ash-ai/sdk'
import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { collect, type EnvOptions, readEnvOptions } from '../env-options.ts'
import { bold, cyan, dim, green } from '../output.ts'
import { readMessage, runTurn } from '../run-turn.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'
import { addEvents } from './session-events.ts'
import { addExec } from './session-exec.ts'
import { addFiles } from './session-files.ts'
import { addPermissions } from './session-permissions.ts'

export function addSession(program: Command, run: Run): void {
  const session = addCommand(program, 'session', 'Work with sessions, step by step.', [
    'id=$(ash session create hosted-agent)',
    'ash session send $id "What is in this folder?"',
    'ash session end $id',
  ])
  addCommand(session, 'create <agent>', 'Create a session and print its id.', [
    'id=$(ash session create hosted-agent)',
    'ash session create hosted-agent --model claude-sonnet-4-5 --env REGION=eu',
  ])
    .option('--model <model>', 'the model to use')
    .option('-e, --env <NAME=value>', 'a variable for the session; repeatable', collect)
    .option('--env-file <file>', 'variables from a file; repeatable', collect)
    .option('--credential <name>', 'a credential that it may use; repeatable', collect)
    .action(run(create))
  addCommand(session, 'send <id> <message>', 'Send a message and print the answer as it comes.', [
    'ash session send $id "What is in this folder?"',
    'git diff | ash session send $id -',
    'ash session send $id "Hello" --json',
    'ash session send $id "And then the tests" --queue --async',
  ])
    .option('--queue', 'wait for the turn under way instead of being refused')
    .option('--async', 'return as soon as the message is stored; prints the id of its turn')
    .action(run(send))
  addPaging(
    addCommand(session, 'list', 'List the sessions.', [
      'ash session list',
      'ash session list --agent hosted-agent --status active --json',
    ])
      .option('--agent <name>', 'only of this agent')
      .option('--status <status>', 'only in this status', toStatus),
  ).action(run(list))
  addCommand(session, 'get <id>', 'Show a session.', [
    'ash session get $id',
    'ash session get $id --json',
  ]).action(run(get))
  addChanges(session, run)
  addEvents(session, run)
  addExec(session, run)
  addFiles(session, run)
  addPermissions(session, run)
}

function addChanges(session: Command, run: Run): void {
  addCommand(session, 'pause <id>', 'Pause a session; it keeps its files and memory.', [
    'ash session pause $id',
  ]).action(run((context, id: string) => change(context, id, 'pause')))
  addCommand(session, 'resume <id>', 'Resume a session that is paused or failed.', [
    'ash session resume $id',
  ]).action(run((context, id: string) => change(context, id, 'resume')))
  addCommand(session, 'end <id>', 'End a session for good.', ['ash session end $id']).action(
    run((context, id: string) => change(context, id, 'end')),
  )
  addCommand(session, 'interrupt <id>', 'Stop what the agent is doing now.', [
    'ash session interrupt $id',
  ]).action(run(interrupt))
}

type CreateOptions = EnvOptions & { model?: string; credential?: string[] }

async function create(context: Context, agent: string, options: CreateOptions): Promise<void> {
  const { client, config, output, signal } = context
  const env = await readEnvOptions(config, options)
  const session = await client.sessions.create(
    {
      agent,
      env,
      ...(options.model !== undefined && { model: options.model }),
      ...(options.credential && { credentials: options.credential }),
    },
    { signal },
  )
  output.result({ session }, [session.id])
  if (!output.isJson) output.note('Next: ', cyan(`ash session send ${session.id} "Hello"`))
}

interface SendFlags {
  queue?: true
  async?: true
}

async function send(context: Context, id: string, message: string, flags: SendFlags): Promise<void> {
  const content = await readMessage(message)
  const { client, output, signal } = context
  const options = flags.queue ? { queue: true } : {}
  if (!flags.async) return runTurn(context, id, content, options)
  const accepted = await client.sessions.sendAsync(id, content, { ...options, signal })
  output.result(accepted, [accepted.turnId])
  if (!output.isJson) output.note('Next: ', cyan(`ash session events ${id} --turn ${accepted.turnId}`))
}

type ListOptions = PagingOptions & { agent?: string; status?: SessionStatus }

async function list({ client, output, signal }: Context, options: ListOptions): Promise<void> {
  const page = await client.sessions.list({ ...options, signal })
  if (output.isJson) return output.event(page)
  const rows = page.sessions.map((session) => [
    session.id,
    `${session.agentName} v${session.agentVersion}`,
    session.status,
    session.lastActiveAt,
  ])
  if (rows.length === 0) output.note('No sessions. Create one with: ash session create <agent>')
  else output.table(['ID', 'AGENT', 'STATUS', 'LAST ACTIVE'], rows)
  showMore(output, page.nextCursor)
}

async function get({ client, output, signal }: Context, id: string): Promise<void> {
  const session = await client.sessions.get(id, { signal })
  const { error, model } = session
  output.result(
    { session },
    [bold(session.id), ` ${session.status}`],
    [dim('  Agent        '), `${session.agentName} version ${session.agentVersion}`],
    [dim('  Isolation    '), `${session.isolation} (${session.provider})`],
    ...(model === undefined ? [] : [[dim('  Model        '), model]]),
    [dim('  Created      '), session.createdAt],
    [dim('  Last active  '), session.lastActiveAt],
    ...(error === undefined ? [] : [[dim('  Error        '), `${error.code}: ${error.message}`]]),
  )
}

type Change = 'pause' | 'resume' | 'end'

async function change({ client, output, signal }: Context, id: string, what: Change): Promise<void> {
  const session: Session = await client.sessions[what](id, { signal })
  output.result({ session }, [green('✓'), ` ${session.id} is ${session.status}`])
}

async function interrupt({ client, output, signal }: Context, id: string): Promise<void> {
  const reply = await client.sessions.interrupt(id, { signal })
  const waiting = reply.cancelled.length > 0 ? `; ${reply.cancelled.length} waiting cancelled` : ''
  output.result(reply, [green('✓'), ` Interrupted${waiting}`])
}

const STATUSES: SessionStatus[] = ['starting', 'active', 'paused', 'error', 'ended']

function toStatus(text: string): SessionStatus {
  const status = STATUSES.find((known) => known === text)
  if (status === undefined) throw new InvalidArgumentError(`Give one of ${STATUSES.join(', ')}.`)
  return status
}
