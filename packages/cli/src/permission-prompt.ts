import type { PermissionAnswer, PermissionRequest, SessionEvent } from '@ash-ai/sdk'
import type { Context } from './context.ts'
import { bold, cyan, dim, type Part } from './output.ts'
import type { Lines } from './prompts.ts'
import { type Question, questionsOf, toAnswer } from './questions.ts'
import { toSafeLine } from './terminal-text.ts'

const MAX_INPUT_CHARS = 4_000

/** What the agent asks during a turn: put to whoever sits at the terminal, or told with how to answer it. */
export class PermissionPrompt {
  readonly #context: Context
  readonly #sessionId: string
  readonly #openLines: (() => Lines) | undefined
  readonly #waiting = new Map<string, AbortController>()
  #asking: Promise<void> = Promise.resolve()

  /** Without `openLines` nobody is asked. */
  constructor(context: Context, sessionId: string, openLines?: () => Lines) {
    this.#context = context
    this.#sessionId = sessionId
    this.#openLines = context.output.isJson ? undefined : openLines
  }

  handle(event: SessionEvent): void {
    if (event.type !== 'permission_request' || this.#context.output.isJson) return
    if (event.status === 'pending') this.#add(event)
    else this.#drop(event.requestId, event.status)
  }

  /** The turn is over; nothing can be answered any more. */
  async close(): Promise<void> {
    for (const abort of this.#waiting.values()) abort.abort()
    await this.#asking
  }

  #add(request: PermissionRequest): void {
    const openLines = this.#openLines
    if (!openLines) {
      this.#tell(request)
      return
    }
    const abort = new AbortController()
    this.#waiting.set(request.requestId, abort)
    // One after another: two prompts at once could not be told apart.
    this.#asking = this.#asking.then(() => this.#ask(request, openLines(), abort.signal))
  }

  #drop(requestId: string, status: string): void {
    const abort = this.#waiting.get(requestId)
    if (!abort) return
    this.#waiting.delete(requestId)
    abort.abort()
    this.#context.output.note(dim(`\n  no answer needed any more: ${status}`))
  }

  #tell(request: PermissionRequest): void {
    this.#show(request)
    if (request.kind === 'question')
      for (const question of questionsOf(request.input)) this.#showQuestion(question)
    const { output } = this.#context
    const ids = `${this.#sessionId} ${request.requestId}`
    const answer = request.kind === 'question' ? ' --answer <text>' : ''
    output.note(
      dim('  answer with '),
      cyan(`ash session allow ${ids}${answer}`),
      dim(' or '),
      cyan(`deny ${ids}`),
    )
  }

  async #ask(request: PermissionRequest, lines: Lines, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return
    this.#show(request)
    const answer =
      request.kind === 'question'
        ? await this.#askQuestions(request, lines, signal)
        : await askPermission(lines, signal)
    if (answer === undefined || !this.#waiting.delete(request.requestId)) return
    const { client, output } = this.#context
    await client.sessions
      .answer(this.#sessionId, request.requestId, answer)
      .catch((error: Error) => output.note(error.message))
  }

  #show({ tool, input, kind, reason }: PermissionRequest): void {
    const { output } = this.#context
    if (kind === 'question') {
      output.note(bold('  The agent asks:'))
      return
    }
    output.note(bold(`  The agent wants to use ${toSafeLine(tool)}`), ...why(reason))
    const text = JSON.stringify(input, null, 2)
    output.note(text.slice(0, MAX_INPUT_CHARS))
    if (text.length > MAX_INPUT_CHARS) {
      output.note(
        bold(`  ${text.length - MAX_INPUT_CHARS} more characters: `),
        cyan(`ash session permissions ${this.#sessionId} --json`),
      )
    }
  }

  #showQuestion({ question, options }: Question): void {
    const { output } = this.#context
    output.note(`  ${toSafeLine(question)}`)
    for (const [index, { label, description }] of options.entries()) {
      const more = description ? dim(`  ${toSafeLine(description)}`) : ''
      output.note(`    ${index + 1}. ${toSafeLine(label)}`, more)
    }
  }

  async #askQuestions(
    { input }: PermissionRequest,
    lines: Lines,
    signal: AbortSignal,
  ): Promise<PermissionAnswer | undefined> {
    const answers: Record<string, string> = {}
    for (const question of questionsOf(input)) {
      this.#showQuestion(question)
      const hint = question.multiSelect
        ? 'numbers with commas, or your own words'
        : 'a number, or your own words'
      const line = await askUntilSaid(lines, `  Answer (${hint}): `, signal)
      if (line === undefined) return undefined
      answers[question.question] = toAnswer(question, line)
    }
    return { behavior: 'allow', answers }
  }
}

const why = (reason: string | undefined): Part[] => (reason ? [dim(`: ${toSafeLine(reason)}`)] : [])

/** Only a clear yes allows. */
async function askPermission(lines: Lines, signal: AbortSignal): Promise<PermissionAnswer | undefined> {
  const line = await askUntilSaid(lines, '  Allow? (y, n, or why not): ', signal)
  if (line === undefined) return undefined
  if (/^y(es)?$/i.test(line)) return { behavior: 'allow' }
  return { behavior: 'deny', ...(!/^no?$/i.test(line) && { message: line }) }
}

async function askUntilSaid(
  lines: Lines,
  question: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  for (;;) {
    const line = (await lines.ask(question, signal))?.trim()
    if (line !== '') return line
  }
}
