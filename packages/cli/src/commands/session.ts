import type { Session, SessionStatus } from '@ash-ai/sdk'
import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { bold, cyan, dim, type Part } from '../output.ts'
import { readMessage, runTurn } from '../run-turn.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'
import { addCheckpoints } from './session-checkpoints.ts'
import { addCreate } from './session-create.ts'
import { addEvents } from './session-events.ts'
import { addExec } from './session-exec.ts'
import { addFiles } from './session-files.ts'
import { addLifecycle } from './session-lifecycle.ts'
import { addPermissions } from './session-permissions.ts'
import { addWorkspace } from './session-workspace.ts'

export function addSession(program: Command, run: Run): void {
  const session = addCommand(program, 'session', 'Work with sessions, step by step.', [
    'id=$(ash session create hosted-agent)',
    'ash session send $id "What is in this folder?"',
    'ash session end $id',
  ])
  addCreate(session, run)
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
      .option('--template <name>', 'only with this template')
      .option('--status <status>', 'only in this status', toStatus),
  ).action(run(list))
  addCommand(session, 'get <id>', 'Show a session.', ['ash session get $id', 'ash session get $id --json'])
    .alias('show')
    .action(run(get))
  addLifecycle(session, run)
  addCheckpoints(session, run)
  addEvents(session, run)
  addExec(session, run)
  addFiles(session, run)
  addWorkspace(session, run)
  addPermissions(session, run)
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

type ListOptions = PagingOptions & { agent?: string; template?: string; status?: SessionStatus }

async function list({ client, output, signal }: Context, options: ListOptions): Promise<void> {
  const page = await client.sessions.list({ ...options, signal })
  if (output.isJson) return output.event(page)
  const hasForks = page.sessions.some(({ parentSessionId }) => parentSessionId !== undefined)
  const rows = page.sessions.map((session) => [
    session.id,
    sourceOf(session),
    session.status,
    session.sandboxState,
    session.lastActiveAt,
    ...(hasForks ? [session.parentSessionId ?? ''] : []),
  ])
  const header = [
    'ID',
    'AGENT OR TEMPLATE',
    'STATUS',
    'SANDBOX',
    'LAST ACTIVE',
    ...(hasForks ? ['FORK OF'] : []),
  ]
  if (rows.length === 0) output.note('No sessions. Create one with: ash session create')
  else output.table(header, rows)
  showMore(output, page.nextCursor)
}

async function get({ client, output, signal }: Context, id: string): Promise<void> {
  const session = await client.sessions.get(id, { signal })
  const { error } = session
  output.result(
    { session },
    [bold(session.id), ` ${session.status}`],
    ...fact('Agent', session.agentName && `${session.agentName} version ${session.agentVersion}`),
    ...fact('Template', session.template),
    ...fact('Mode', session.agentName === undefined ? session.mode : undefined),
    ...fact('For', session.agentId),
    ...fact('Languages', session.agentName === undefined ? session.languages.join(', ') : undefined),
    ...fact('Isolation', `${session.isolation} (${session.provider})`),
    ...fact('Sandbox', session.sandboxState),
    ...fact('Model', session.model),
    ...fact('Fork of', session.parentSessionId),
    ...fact('Checkpoint', session.checkpointId),
    ...fact('Saved', savedWhen(session)),
    ...fact('Resumes', session.autoResume ? undefined : 'only when asked'),
    ...fact('Created', session.createdAt),
    ...fact('Last active', session.lastActiveAt),
    ...fact('Error', error && `${error.code}: ${error.message}`),
  )
}

/** What it was made of. */
const sourceOf = ({ agentName, agentVersion, template = '' }: Session) =>
  agentName === undefined ? template : `${agentName} v${agentVersion}`

const fact = (name: string, value: string | undefined): Part[][] =>
  value === undefined ? [] : [[dim(`  ${name.padEnd(13)}`), value]]

function savedWhen({ checkpoints: { every, keep, keepDays } }: Session): string {
  return [
    every === 'pause' ? 'when it pauses' : 'after each turn',
    ...(keep === undefined ? [] : [`newest ${keep} kept`]),
    ...(keepDays === undefined ? [] : [`kept for ${keepDays} days`]),
  ].join(', ')
}

const STATUSES: SessionStatus[] = ['starting', 'active', 'paused', 'error', 'ended']

function toStatus(text: string): SessionStatus {
  const status = STATUSES.find((known) => known === text)
  if (status === undefined) throw new InvalidArgumentError(`Give one of ${STATUSES.join(', ')}.`)
  return status
}
