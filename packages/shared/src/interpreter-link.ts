import { AshError } from './errors.ts'
import {
  INTERRUPT_GRACE_MS,
  type Language,
  MAX_INTERPRETER_LINE_BYTES,
  MAX_RUN_OUTPUT_BYTES,
  type RunOutcome,
  type RunRequest,
} from './interpreter.ts'
import { runLine, shellInput } from './interpreter-command.ts'
import {
  endsWithProcess,
  judgeRun,
  mostUsed,
  NO_USAGE,
  type ProcessExit,
  type RunUsage,
  usedBetween,
} from './interpreter-outcome.ts'
import { InterpreterOutput, type ReadableEnd, type TakePiece } from './interpreter-output.ts'
import { decodeReply, type InterpreterReply } from './interpreter-replies.ts'
import { ActiveRun } from './interpreter-run.ts'
import { LineSplitter, ProtocolError } from './line-splitter.ts'

/** Output that the interpreter's other threads keep writing after a run. */
const SETTLE_MS = 50
/** After a process is gone, what it left in the background may still hold its output open. */
const DRAIN_MS = 200
const KILL_TIMEOUT_MS = 5_000
const MEASURE_TIMEOUT_MS = 500

/** Both ways at once, as a socket. */
export interface ChannelEnd extends ReadableEnd {
  write(text: string): unknown
  end(): unknown
}

/** A live interpreter, as whoever started it holds it. */
export interface InterpreterProcess {
  language: Language
  stdout: ReadableEnd
  stderr: ReadableEnd
  /** The other end of its `INTERPRETER_FD`. */
  channel: ChannelEnd
  exited: Promise<ProcessExit>
  /** Kills it and everything it started; resolves when that is gone. */
  kill(): Promise<void>
  /** Sends SIGINT to it and what it runs. */
  interrupt(): void
  /** What it and those it started have used so far; also of one that is gone, where that is known. */
  measure(): RunUsage | undefined | Promise<RunUsage | undefined>
}

interface RunOptions {
  take: TakePiece
  /** Of each stream. */
  maxOutputBytes?: number
}

/** Drives one interpreter: one run at a time, each with an outcome, whatever the code does. */
export class InterpreterLink {
  readonly language: Language
  /** Resolves when it waits for work; a shell always does. Rejects when it ended before that. */
  readonly ready: Promise<void>
  readonly #process: InterpreterProcess
  readonly #output: InterpreterOutput
  readonly #ready = Promise.withResolvers<void>()
  readonly #channelEnded = Promise.withResolvers<void>()
  readonly #gone: Promise<void>
  #isReady = false
  #isOver = false
  #exit: ProcessExit | undefined
  #run: ActiveRun | undefined
  #killing: Promise<unknown> | undefined

  constructor(process: InterpreterProcess) {
    this.language = process.language
    this.#process = process
    this.#output = new InterpreterOutput(process.stdout, process.stderr, (error) => this.#takerFailed(error))
    this.ready = this.#ready.promise
    this.ready.catch(() => {}) // A run tells the same.
    if (this.#isShell) this.#becomeReady()
    this.#listen()
    this.#gone = process.exited
      .catch(() => ({ code: null, signal: null }))
      .then((exit: ProcessExit) => this.#exited(exit))
  }

  /** It has ended, or nothing it says is believed any more. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Runs one request. Rejects only where the taker fails, or with `interpreter_gone` where it is over already. */
  async run(request: RunRequest, { take, maxOutputBytes }: RunOptions): Promise<RunOutcome> {
    if (this.#run !== undefined) throw new Error('the interpreter is at work')
    if (this.#isOver) throw new AshError('interpreter_gone', 'The interpreter ended before the run began')
    const run = new ActiveRun(request)
    this.#run = run
    try {
      return await this.#complete(run, take, maxOutputBytes ?? MAX_RUN_OUTPUT_BYTES)
    } finally {
      this.#run = undefined
      this.#output.finish()
      if (this.#isOver) this.#release()
      run.finished.resolve()
    }
  }

  /** Asks the run under way to stop, and kills the interpreter where it goes on. */
  interrupt(): void {
    const run = this.#run
    if (run === undefined || run.isCancelled || run.cause !== undefined) return
    run.isCancelled = true
    this.#process.interrupt()
    run.timers.push(
      // The first may have come before the code began.
      setTimeout(() => this.#process.interrupt(), INTERRUPT_GRACE_MS / 2),
      setTimeout(() => run.stop('stop'), INTERRUPT_GRACE_MS),
    )
  }

  /** Ends it and all that it started; a run under way ends as cancelled. */
  async stop(): Promise<void> {
    this.#isOver = true
    const run = this.#run
    if (run !== undefined) {
      run.isCancelled = true
      run.stop('stop')
      run.abandoned.resolve()
      await run.finished.promise
    }
    await this.#kill()
    this.#release()
  }

  get #isShell(): boolean {
    return this.language === 'shell'
  }

  async #complete(run: ActiveRun, take: TakePiece, maxOutputBytes: number): Promise<RunOutcome> {
    const { request } = run
    const before = this.#measure()
    this.#output.begin(take, maxOutputBytes)
    run.timers.push(setTimeout(() => run.stop('timeout'), request.timeoutMs))
    this.#send(request)
    await run.ended.promise
    for (const timer of run.timers) clearTimeout(timer)
    const wallMs = performance.now() - run.startedMs
    const after = mostUsed(await run.usage, await this.#measure())
    const metrics = { wallMs, ...usedBetween(await before, after) }
    await this.#windUp(run, Math.max(DRAIN_MS, request.timeoutMs - wallMs))
    if (run.failure !== undefined) throw run.failure.error
    const truncated = this.#output.finish() || run.hasDropped
    return this.#outcome(run, metrics, truncated)
  }

  #outcome(run: ActiveRun, metrics: RunOutcome['metrics'], truncated: boolean): RunOutcome {
    const { cause = 'stop', isCancelled, end, result, results } = run
    const isBelieved = cause !== 'broken'
    return {
      ...judgeRun({ cause, isShell: this.#isShell, isCancelled, end, exit: this.#exit }),
      ...(isBelieved && result !== undefined && { result }),
      results: isBelieved ? results : [],
      truncated,
      metrics,
      isOver: this.#isOver,
    }
  }

  #send(request: RunRequest): void {
    const { channel } = this.#process
    channel.write(this.#isShell ? shellInput(request) : runLine(request))
    if (this.#isShell) channel.end()
  }

  /** Reads the rest and, unless the interpreter goes on to live, kills what there is left. */
  async #windUp(run: ActiveRun, maxMs: number): Promise<void> {
    if (run.cause === 'exit') {
      await within(DRAIN_MS, Promise.all([this.#channelEnded.promise, this.#output.ended]))
    }
    if (run.cause === 'done' || run.cause === 'exit')
      await within(maxMs, Promise.race([this.#output.settle(SETTLE_MS), run.abandoned.promise]))
    if (run.cause === 'done' && run.request.kind === 'code' && !this.#isOver) return
    await this.#kill()
    await within(DRAIN_MS, this.#output.settle(SETTLE_MS))
  }

  #listen(): void {
    const { channel } = this.#process
    const lines = new LineSplitter(MAX_INTERPRETER_LINE_BYTES)
    channel.on('data', (chunk: Uint8Array) => {
      if (this.#killing !== undefined) return
      try {
        for (const line of lines.push(chunk)) this.#receive(decodeReply(line))
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error
        this.#distrust()
      }
    })
    const ended = () => this.#channelEnded.resolve()
    channel.on('end', ended)
    channel.on('close', ended)
    channel.on('error', ended)
    void this.#channelEnded.promise.then(() => this.#checkAlive())
  }

  #receive(reply: InterpreterReply): void {
    if (reply.kind === 'ready') {
      if (this.#isReady) throw new ProtocolError('ready twice')
      this.#becomeReady()
      return
    }
    const run = this.#run
    if (this.#isShell || !this.#isReady || run === undefined) throw new ProtocolError('a reply to nothing')
    run.add(reply)
    if (reply.kind !== 'done') return
    // A program has its exit before it, and of what it used there is nothing to see after that.
    if (endsWithProcess(this.#isShell, run.request)) run.usage = this.#measure()
    else run.stop('done')
  }

  /** A channel ends with its process, or because the code closed it. */
  async #checkAlive(): Promise<void> {
    if (this.#isShell) return
    await within(DRAIN_MS, this.#gone)
    const run = this.#run
    if (this.#exit !== undefined || this.#killing !== undefined) return
    const isProgram = run?.end !== undefined && run.request.kind === 'script'
    if (!isProgram) this.#distrust()
  }

  #distrust(): void {
    this.#isOver = true
    this.#ready.reject(new Error('the channel of the interpreter is broken'))
    if (this.#run !== undefined) this.#run.stop('broken')
    else void this.#kill().then(() => this.#release())
  }

  #takerFailed(error: unknown): void {
    if (this.#run === undefined) return
    this.#run.failure = { error }
    this.#run.stop('stop')
  }

  #exited(exit: ProcessExit): void {
    this.#exit = exit
    this.#isOver = true
    this.#ready.reject(new Error('the interpreter ended at its start'))
    if (this.#run !== undefined) this.#run.stop('exit')
    else void this.#kill().then(() => this.#release())
  }

  #becomeReady(): void {
    this.#isReady = true
    this.#ready.resolve()
  }

  #kill(): Promise<unknown> {
    this.#isOver = true
    this.#killing ??= within(
      KILL_TIMEOUT_MS,
      this.#process.kill().catch(() => {}),
    )
    return this.#killing
  }

  /** Something that got away may hold the other ends for ever. */
  #release(): void {
    this.#output.destroy()
    this.#process.channel.destroy()
  }

  async #measure(): Promise<RunUsage> {
    try {
      return (await within(MEASURE_TIMEOUT_MS, this.#process.measure())) ?? NO_USAGE
    } catch {
      return NO_USAGE
    }
  }
}

/** What it gives, or undefined when the time is over; a failure after that is nobody's. */
async function within<Value>(maxMs: number, work: Value | Promise<Value>): Promise<Value | undefined> {
  const { promise, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => resolve(undefined), maxMs)
  try {
    return await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}
