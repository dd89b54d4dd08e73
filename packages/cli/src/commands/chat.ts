import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT, Interrupted, toFailure } from '../failure.ts'
import { bold, cyan, dim } from '../output.ts'
import { Lines } from '../prompts.ts'
import { readMessage, runTurn } from '../run-turn.ts'

interface ChatOptions {
  session?: string
  keep?: boolean
  model?: string
}

export function addChat(program: Command, run: Run): void {
  addCommand(program, 'chat <agent> [message]', 'Talk to an agent.', [
    'ash chat hosted-agent "What can you do?"',
    'ash chat hosted-agent                        # a conversation; Ctrl-D ends it',
    'git diff | ash chat reviewer -               # the message from stdin',
    'ash chat hosted-agent "Go on" --session $id',
  ])
    .option('--session <id>', 'continue this session and leave it open')
    .option('--keep', 'do not end the session afterwards')
    .option('--model <model>', 'the model to use')
    .addHelpText(
      'after',
      '\nCtrl-C stops the agent; in a conversation you can then go on.\nWhat the agent asks (permissions.ask of its configuration) is asked here, in a terminal.',
    )
    .action(run(chat))
}

async function chat(
  context: Context,
  agent: string,
  message: string | undefined,
  options: ChatOptions,
): Promise<void> {
  const content = message === undefined ? undefined : await readMessage(message)
  const sessionId = await openSession(context, agent, options)
  const turnOptions = {
    includePartialMessages: true,
    ...(options.model !== undefined && { model: options.model }),
  }
  let lines: Lines | undefined
  const openLines = () => {
    lines ??= new Lines(context)
    return lines
  }
  const send: Send = (text) =>
    runTurn(context, sessionId, text, turnOptions, Lines.canAsk() ? openLines : undefined)
  try {
    if (content === undefined) await converse(context, openLines(), send)
    else await send(content)
  } finally {
    lines?.close()
    await closeSession(context, agent, sessionId, options)
  }
}

async function openSession(context: Context, agent: string, options: ChatOptions): Promise<string> {
  const { client, output, signal } = context
  const session =
    options.session === undefined
      ? await client.sessions.create(
          {
            agent,
            includePartialMessages: true,
            ...(options.model !== undefined && { model: options.model }),
          },
          { signal },
        )
      : await client.sessions.get(options.session, { signal })
  if (session.agentName === undefined) {
    const next = `Run code in it with: ash run --session ${session.id} …`
    throw new CliError(EXIT.usage, `Session ${session.id} has no agent`, next)
  }
  if (session.agentName !== agent) {
    const next = `Use: ash chat ${session.agentName} --session ${session.id}`
    throw new CliError(EXIT.usage, `Session ${session.id} belongs to ${session.agentName}`, next)
  }
  if (output.isJson) output.event({ type: 'session', session })
  else output.note(dim(`session ${session.id}`))
  return session.id
}

type Send = (content: string) => Promise<void>

async function converse(context: Context, lines: Lines, send: Send): Promise<void> {
  for await (const line of lines.prompts()) {
    try {
      await send(line)
    } catch (error) {
      if (error instanceof Interrupted) continue
      const failure = toFailure(error, context.config.url)
      // A turn that failed leaves a session one can go on with; a server that is gone does not.
      if (failure.exitCode !== EXIT.failed) throw error
      context.output.failure(failure.message, failure.next)
    }
  }
}

/** Not with the context's signal: after Ctrl-C the session should end all the same. */
async function closeSession(
  { client, output }: Context,
  agent: string,
  sessionId: string,
  options: ChatOptions,
): Promise<void> {
  if (options.keep || options.session !== undefined) {
    if (!output.isJson) {
      output.note(dim('continue with '), cyan(`ash chat ${agent} --session ${sessionId}`))
    }
    return
  }
  await client.sessions.end(sessionId, { timeoutMs: 10_000, retries: 0 }).catch(() => {
    output.note('The session could not be ended; later: ', bold(`ash session end ${sessionId}`))
  })
}
