import { type Execution, type ExecutionStream, isAshError } from '@ash-ai/sdk'
import type { Context } from './context.ts'
import { ExecutionPrinter, exitCodeOfRun } from './execution-printer.ts'
import { keepArtifacts } from './run-artifacts.ts'

export interface ShowOptions {
  /** Output as it comes; with `--json` every event. Otherwise at the end. */
  isLive: boolean
  /** Where files and images of the run are saved. */
  artifacts?: string | undefined
}

/** Shows code that runs, and ends as it ended. Ctrl-C cancels the code, not just the display. */
export async function showRun(context: Context, run: ExecutionStream, options: ShowOptions): Promise<void> {
  const printer = new ExecutionPrinter(context.output)
  const execution = await follow(context, run, printer, options)
  context.setExitCode(exitCodeOfRun(execution))
  if (!context.output.isJson) printer.end(execution)
  const saved = await keepArtifacts(context, execution, options.artifacts)
  if (!context.output.isJson || options.isLive) return
  context.output.event({ execution, ...(options.artifacts !== undefined && { saved }) })
}

async function follow(
  context: Context,
  run: ExecutionStream,
  printer: ExecutionPrinter,
  { isLive }: ShowOptions,
): Promise<Execution> {
  const { interrupts, output } = context
  const cancellation = new Cancellation(context, run)
  const release = interrupts.handle(() => cancellation.ask())
  try {
    for await (const event of run) {
      cancellation.send()
      if (isLive && output.isJson) output.event(event)
      else if (isLive) printer.print(event)
    }
    return await run.result()
  } finally {
    release()
  }
}

/** Asked for once by the user, sent once when it is known what to cancel. */
class Cancellation {
  readonly #context: Context
  readonly #run: ExecutionStream
  #isAsked = false
  #isSent = false

  constructor(context: Context, run: ExecutionStream) {
    this.#context = context
    this.#run = run
  }

  ask(): void {
    this.#isAsked = true
    this.#context.output.note('Cancelling… (Ctrl-C again to leave at once)')
    this.send()
  }

  send(): void {
    const { id, sessionId } = this.#run
    if (!this.#isAsked || this.#isSent || id === undefined || sessionId === undefined) return
    this.#isSent = true
    this.#context.client.executions.cancel(sessionId, id).catch((error: Error) => {
      // It ended by itself in that moment.
      if (!isAshError(error, 'execution_finished')) this.#context.output.note(error.message)
    })
  }
}
