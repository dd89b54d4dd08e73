import type { Execution, ExecutionStreamEvent } from '@ash-ai/sdk'
import { EXIT } from './failure.ts'
import type { Output } from './output.ts'

/** Shows code that runs: what it writes on the same streams as it comes, then what came of it. */
export class ExecutionPrinter {
  readonly #output: Output
  #isLineOpen = false
  #hasShownOutput = false

  constructor(output: Output) {
    this.#output = output
  }

  print(event: ExecutionStreamEvent): void {
    if (event.type !== 'output') return
    this.#hasShownOutput = true
    this.#write(event.stream, event.text)
  }

  /** What is known at the end: output that was not shown before, the result, and why it failed. */
  end(execution: Execution): void {
    if (!this.#hasShownOutput) {
      this.#write('stdout', execution.stdout)
      this.#write('stderr', execution.stderr)
    }
    this.#closeLine()
    this.#showResults(execution)
    if (execution.truncated) this.#output.note('There was more output or results; the rest is lost')
    this.#showError(execution)
  }

  #showResults({ hasResult, result, results }: Execution): void {
    for (const { isValue, data } of results) {
      const plain = data['text/plain']
      // The value of the last expression is shown once: as JSON where it is that.
      if (typeof plain === 'string' && !(isValue && hasResult)) this.#output.data(`${plain}\n`)
    }
    if (hasResult) this.#output.data(`${JSON.stringify(result, null, 2)}\n`)
  }

  #showError(execution: Execution): void {
    const { status, error, timeout } = execution
    if (status === 'failed') this.#showFailure(execution)
    if (status === 'cancelled') this.#output.note('Cancelled')
    if (status === 'timeout')
      this.#output.failure(
        `The code ran longer than ${timeout / 1000} s and was stopped`,
        'Allow more with --timeout',
      )
    if (status === 'crashed')
      this.#output.failure(
        `The run broke off: ${error?.message ?? 'nobody knows why'}`,
        'That was not the code. Run it again; ash logs shows the log of the server',
      )
  }

  #showFailure({ error, exitCode, signal, stderr }: Execution): void {
    if (error !== undefined) {
      const text = (error.traceback ?? `${error.name}: ${error.message}`).trimEnd()
      if (!stderr.includes(text)) this.#output.errorData(`${text}\n`)
    } else this.#output.note(`The code ended with ${exitCode ?? signal ?? 'a failure'}`)
  }

  #write(stream: 'stdout' | 'stderr', text: string): void {
    if (stream === 'stderr') this.#output.errorData(text)
    else this.#output.data(text)
    if (stream === 'stdout' && text !== '') this.#isLineOpen = !text.endsWith('\n')
  }

  #closeLine(): void {
    if (this.#isLineOpen) this.#output.data('\n')
    this.#isLineOpen = false
  }
}

/** The largest exit code that a program means for itself; those above are a shell's. */
const MAX_OWN_EXIT_CODE = 125

/** How `ash` ends after this run. */
export function exitCodeOfRun({ status, exitCode = 0 }: Execution): number {
  if (status === 'timeout') return EXIT.timeout
  if (status === 'cancelled') return EXIT.interrupted
  if (status === 'crashed') return EXIT.crashed
  if (exitCode > 0 && exitCode <= MAX_OWN_EXIT_CODE) return exitCode
  return status === 'completed' ? EXIT.ok : EXIT.failed
}
