import type { PermissionAnswer } from '@ash-ai/sdk'
import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { collect } from '../env-options.ts'
import { CliError, EXIT } from '../failure.ts'
import { green } from '../output.ts'
import { questionsOf, toAnswer } from '../questions.ts'

const MAX_INPUT_CHARS = 200

export function addPermissions(session: Command, run: Run): void {
  addCommand(session, 'permissions <id>', 'List what the agent asks and waits for.', [
    'ash session permissions $id',
    'ash session permissions $id --json',
  ]).action(run(list))
  addCommand(session, 'allow <id> <requestId>', 'Allow what the agent asks for, or answer its questions.', [
    'ash session allow $id $requestId',
    'ash session allow $id $requestId --input \'{"command":"ls"}\'',
    'ash session allow $id $requestId --answer 2 --answer "neither, use a file"',
  ])
    .option('--input <json>', 'the tool gets this input instead', toInput)
    .option(
      '--answer <text>',
      'answer of a question: its number or your words; one for each question',
      collect,
    )
    .action(run(allow))
  addCommand(session, 'deny <id> <requestId>', 'Refuse what the agent asks for.', [
    'ash session deny $id $requestId',
    'ash session deny $id $requestId --message "Use the test database"',
    'ash session deny $id $requestId --interrupt',
  ])
    .option('--message <text>', 'what the agent is told')
    .option('--interrupt', 'stop the agent instead of letting it go on')
    .action(run(deny))
}

async function list({ client, output, signal }: Context, id: string): Promise<void> {
  const permissions = await client.sessions.permissions(id, { signal })
  if (output.isJson) return output.event({ permissions })
  if (permissions.length === 0) return output.note('The agent waits for no answer')
  output.table(
    ['REQUEST', 'KIND', 'TOOL', 'EXPIRES', 'INPUT'],
    permissions.map(({ requestId, kind, tool, expiresAt, input }) => {
      const text = JSON.stringify(input)
      const isLong = text.length > MAX_INPUT_CHARS
      return [requestId, kind, tool, expiresAt, isLong ? `${text.slice(0, MAX_INPUT_CHARS)}…` : text]
    }),
  )
}

interface AllowOptions {
  input?: Record<string, unknown>
  answer?: string[]
}

async function allow(context: Context, id: string, requestId: string, options: AllowOptions): Promise<void> {
  const { input: updatedInput, answer } = options
  const answers = answer && (await nameQuestions(context, id, requestId, answer))
  await settle(context, id, requestId, {
    behavior: 'allow',
    ...(updatedInput && { updatedInput }),
    ...(answers && { answers }),
  })
}

/** Answers are given in the order of the questions; the server wants them by the question's text. */
async function nameQuestions(
  { client, signal }: Context,
  id: string,
  requestId: string,
  answers: string[],
): Promise<Record<string, string> | undefined> {
  const request = (await client.sessions.permissions(id, { signal })).find(
    (one) => one.requestId === requestId,
  )
  if (!request) return {} // The server says what became of it.
  const questions = questionsOf(request.input)
  if (request.kind === 'question' && questions.length !== answers.length) {
    const what = `The agent asks ${questions.length} questions, and there are ${answers.length} answers`
    throw new CliError(EXIT.usage, what, 'Give --answer once for each question')
  }
  const named = questions.map((question, index) => [
    question.question,
    toAnswer(question, answers[index] ?? ''),
  ])
  return Object.fromEntries(named)
}

interface DenyOptions {
  message?: string
  interrupt?: boolean
}

async function deny(context: Context, id: string, requestId: string, options: DenyOptions): Promise<void> {
  await settle(context, id, requestId, { behavior: 'deny', ...options })
}

async function settle(
  { client, output, signal }: Context,
  id: string,
  requestId: string,
  answer: PermissionAnswer,
): Promise<void> {
  const permission = await client.sessions.answer(id, requestId, answer, { signal })
  output.result({ permission }, [green('✓'), ` ${permission.requestId} is ${permission.status}`])
}

function toInput(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>
  } catch {
    // Said below.
  }
  throw new InvalidArgumentError('Give a JSON object, such as \'{"command":"ls"}\'.')
}
