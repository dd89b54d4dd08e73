import { EXECUTION_STATUSES, type Execution, type ExecutionStatus, type ExecutionSummary } from '@ash-ai/sdk'
import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { ExecutionPrinter } from '../execution-printer.ts'
import { bold, dim, green, type Part } from '../output.ts'
import { whileWaiting } from '../progress.ts'
import { sizeOf } from '../quantities.ts'
import { keepArtifacts } from '../run-artifacts.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'

export function addExecution(program: Command, run: Run): void {
  const execution = addCommand(program, 'execution', 'See and cancel what was run in a session.', [
    'ash execution list $id',
  ])
  addPaging(
    addCommand(execution, 'list <session>', 'List what was run in a session, newest first.', [
      'ash execution list $id',
      'ash execution list $id --status running --json',
    ]).option('--status <status>', `only in this status: ${EXECUTION_STATUSES.join(', ')}`, toStatus),
  ).action(run(list))
  addCommand(execution, 'show <session> <id>', 'Show an execution: its output, result and files.', [
    'ash execution show $id $execution',
    'ash execution show $id $execution --artifacts out/',
    'ash execution show $id $execution --json | jq .execution.result',
  ])
    .option('--artifacts <dir>', 'save files and images that it made there')
    .action(run(show))
  addCommand(execution, 'cancel <session> <id>', 'Stop an execution; a kernel keeps its variables.', [
    'ash execution cancel $id $execution',
  ]).action(run(cancel))
}

type ListOptions = PagingOptions & { status?: ExecutionStatus }

async function list(
  { client, output, signal }: Context,
  sessionId: string,
  options: ListOptions,
): Promise<void> {
  const page = await client.executions.list(sessionId, { ...options, signal })
  if (output.isJson) return output.event(page)
  const rows = page.executions.map((execution) => [
    execution.id,
    execution.status,
    execution.language,
    execution.kernel ?? execution.kind,
    timeOf(execution),
    execution.createdAt,
  ])
  if (rows.length === 0) output.note(`Nothing was run. Run code with: ash run --session ${sessionId} …`)
  else output.table(['ID', 'STATUS', 'LANGUAGE', 'RAN AS', 'TOOK', 'CREATED'], rows)
  showMore(output, page.nextCursor)
}

async function show(
  context: Context,
  sessionId: string,
  id: string,
  { artifacts }: { artifacts?: string },
): Promise<void> {
  const { client, output, signal } = context
  const execution = await client.executions.get(sessionId, id, { signal })
  if (!output.isJson) describe(context, execution)
  const saved = await keepArtifacts(context, execution, artifacts)
  if (output.isJson) output.event({ execution, ...(artifacts !== undefined && { saved }) })
}

/** Facts on stderr, so that stdout has what the code wrote and nothing else. */
function describe({ output }: Context, execution: Execution): void {
  const { id, status, kernel, kind, language, attempt, metrics, path } = execution
  output.note(bold(id), ` ${status}`)
  const facts: Part[][] = [
    [dim('  Ran as       '), `${language} ${kernel === undefined ? kind : `kernel ${kernel}`}`],
    [dim('  Took         '), timeOf(execution) || 'not yet known'],
    ...(path === undefined ? [] : [[dim('  Sandbox      '), path]]),
    ...(metrics === undefined ? [] : [[dim('  Used         '), usageOf(metrics)]]),
    ...(attempt > 1 ? [[dim('  Attempt      '), String(attempt)]] : []),
  ]
  for (const fact of facts) output.note(...fact)
  new ExecutionPrinter(output).end(execution)
}

async function cancel({ client, output, signal }: Context, sessionId: string, id: string): Promise<void> {
  const cancelling = client.executions.cancel(sessionId, id, { signal })
  const execution = await whileWaiting(output, 'Cancelling', cancelling)
  output.result({ execution }, [green('✓'), ` ${execution.id} is ${execution.status}`])
}

const timeOf = ({ metrics }: ExecutionSummary) =>
  metrics === undefined ? '' : `${(metrics.wallMs / 1000).toFixed(3)} s`

const usageOf = ({ cpuMs, peakMemoryBytes }: NonNullable<Execution['metrics']>) =>
  `${(cpuMs / 1000).toFixed(3)} s of CPU, ${sizeOf(peakMemoryBytes)} of memory`

function toStatus(text: string): ExecutionStatus {
  const status = EXECUTION_STATUSES.find((known) => known === text)
  if (status === undefined) throw new InvalidArgumentError(`Give one of ${EXECUTION_STATUSES.join(', ')}.`)
  return status
}
