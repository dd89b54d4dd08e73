import type { CheckpointSettings, Packages, SessionMode } from '@ash-ai/sdk'
import { type Command, InvalidArgumentError } from 'commander'
import { collectPackages, toMode } from '../code-options.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { toDuration, toRunTimeout } from '../durations.ts'
import { collect, type EnvOptions, readEnvOptions } from '../env-options.ts'
import { CliError, EXIT } from '../failure.ts'
import { given } from '../given.ts'
import { cyan } from '../output.ts'
import { whileWaiting } from '../progress.ts'
import { toLimit } from './paging.ts'

export function addCreate(session: Command, run: Run): void {
  addCommand(session, 'create [agent]', 'Create a session and print its id.', [
    'id=$(ash session create hosted-agent)',
    'id=$(ash session create --template python)            # runs code: ash run --session $id …',
    'ash session create --template python --agent-id ada   # the same session each time',
    'ash session create hosted-agent --model claude-sonnet-4-5 --env REGION=eu',
    'ash session create hosted-agent --checkpoint-every pause --keep 10 --no-auto-resume',
  ])
    .option('--template <name>', 'the environment; needed without an agent')
    .option('--mode <mode>', 'without an agent: persistent (default) or ephemeral, for one execution', toMode)
    .option(
      '--agent-id <id>',
      'whom it is for: asked again, an open session with that template is the answer',
    )
    .option('--package <pip:name>', 'install this: pip:<name> or npm:<name>; repeatable', collectPackages)
    .option('--timeout <time>', 'of executions that name none: 30s, 5m; default 300s', toRunTimeout)
    .option('--idle-timeout <time>', 'without work it keeps no process for longer: 10m, 2h', toDuration)
    .option('--lifetime <time>', 'its sandbox is replaced after so long', toDuration)
    .option('--model <model>', 'the model to use')
    .option('-e, --env <NAME=value>', 'a variable for the session; repeatable', collect)
    .option('--env-file <file>', 'variables from a file; repeatable', collect)
    .option('--credential <name>', 'a credential that it may use; repeatable', collect)
    .option('--checkpoint-every <when>', 'turn or pause; default turn', toEvery)
    .option('--keep <count>', 'keep the newest so many checkpoints', toLimit)
    .option('--keep-days <days>', 'keep no older checkpoints', toLimit)
    .option('--no-auto-resume', 'once paused, it refuses messages until it is resumed')
    .action(run(create))
}

type CreateOptions = EnvOptions & {
  template?: string
  mode?: SessionMode
  agentId?: string
  package?: Packages
  timeout?: number
  idleTimeout?: number
  lifetime?: number
  model?: string
  credential?: string[]
  checkpointEvery?: Every
  keep?: number
  keepDays?: number
  autoResume: boolean
}

async function create(context: Context, agent: string | undefined, options: CreateOptions): Promise<void> {
  const { client, config, output, signal } = context
  checkKind(agent, options)
  const env = await readEnvOptions(config, options)
  const { package: packages, credential: credentials } = options
  const { template, mode, agentId, timeout, idleTimeout, lifetime, model } = options
  const creating = client.sessions.create(
    {
      ...given({ agent, template, mode, agentId, packages, timeout, idleTimeout, lifetime }),
      ...given({ model, credentials }),
      env,
      ...checkpointSettings(options),
      ...(!options.autoResume && { autoResume: false }),
    },
    { signal },
  )
  const session = await whileWaiting(output, 'Preparing', creating)
  output.result({ session }, [session.id])
  const next = agent === undefined ? `run --session ${session.id} …` : `session send ${session.id} "Hello"`
  if (!output.isJson) output.note('Next: ', cyan(`ash ${next}`))
}

function checkKind(agent: string | undefined, { template, mode, agentId }: CreateOptions): void {
  if (agent === undefined && template === undefined)
    throw new CliError(
      EXIT.usage,
      'There is neither an agent nor a template',
      'Name an agent to talk to (ash agent list), or --template to run code (ash template list)',
    )
  if (agent !== undefined && (mode ?? agentId) !== undefined)
    throw new CliError(
      EXIT.usage,
      '--mode and --agent-id are for sessions without an agent',
      'Leave them out',
    )
}

function checkpointSettings({ checkpointEvery: every, keep, keepDays }: CreateOptions): {
  checkpoints?: CheckpointSettings
} {
  const checkpoints = given({ every, keep, keepDays })
  return Object.keys(checkpoints).length === 0 ? {} : { checkpoints }
}

type Every = NonNullable<CheckpointSettings['every']>

function toEvery(text: string): Every {
  if (text === 'turn' || text === 'pause') return text
  throw new InvalidArgumentError('Give turn or pause.')
}
