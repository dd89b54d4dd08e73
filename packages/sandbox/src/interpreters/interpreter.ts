import type { Language, OutputPiece, RunOutcome, RunRequest } from '@ash-ai/shared'

/** One process that runs code, wherever it is: below a bridge, or a sandbox of its own. */
export interface Interpreter {
  readonly language: Language
  /**
   * Runs one request; the next may follow unless the outcome says that it is over. Whatever the code does, that is an
   * outcome. Rejects with `sandbox_died` and the like where something else failed, and then it is over, too.
   */
  run(request: RunRequest, take: TakeOutput): Promise<RunOutcome>
  /** Asks the run under way to stop, keeping what the interpreter holds; kills it where it does not listen. */
  interrupt(): Promise<void>
  /** Ends it and everything that it started; a run under way ends as `cancelled`. Safe to call again. */
  stop(): Promise<void>
  readonly isOver: boolean
}

/** Takes output; the interpreter is not read further while the promise is pending. */
export type TakeOutput = (piece: OutputPiece) => Promise<void> | void
