import { setTimeout as delay } from 'node:timers/promises'
import {
  AshError,
  InterpreterLink,
  type Language,
  type RunError,
  type RunOutcome,
  type RunRequest,
} from '@ash-ai/shared'
import type { DiskBackend, DiskState } from '../limits/disk/disk-backend.ts'
import type { ResourceLimits } from '../limits/resource-limits.ts'
import { type LimitHit, LimitWatch } from '../limits/watch-limits.ts'
import type { InterpreterProcess } from '../provider.ts'
import type { SessionDirs } from '../session-dirs.ts'
import { deadlySignal } from './exit-signal.ts'
import type { Interpreter, TakeOutput } from './interpreter.ts'
import { asOutOfMemory } from './out-of-memory.ts'

interface DirectOptions {
  id: string
  language: Language
  dirs: SessionDirs
  limits: ResourceLimits
  disk: DiskBackend
  onLimit: ((hit: LimitHit) => void) | undefined
}

/** How much is kept of what comes by stderr before the interpreter answers: what bubblewrap says. */
const MAX_COMPLAINT_CHARS = 4 * 1024
/** How long what a killed one has said is waited for. */
const LAST_WORDS_MS = 200

/** An interpreter that is a sandbox of its own: when it ends or is killed, everything it started goes with it. */
export class DirectInterpreter implements Interpreter {
  readonly id: string
  readonly language: Language
  readonly dirs: SessionDirs
  /** All of it is gone and the disk is given back; the files stay. */
  readonly exited: Promise<void>
  /** It waits for code. */
  readonly ready: Promise<void>
  readonly #process: InterpreterProcess
  readonly #link: InterpreterLink
  readonly #limits: ResourceLimits
  readonly #complaint: () => string
  #hasEnded = false
  #diskError: RunError | undefined
  #stopping: Promise<void> | undefined

  constructor(process: InterpreterProcess, options: DirectOptions) {
    const { id, language, dirs, limits, disk } = options
    this.id = id
    this.language = language
    this.dirs = dirs
    this.#process = process
    this.#limits = limits
    const watch = this.#watch(options)
    const ended = process.ended.then((exit) => {
      this.#hasEnded = true
      return { code: exit.code, signal: exit.signal ?? deadlySignal(exit.code) }
    })
    const complaint = keepHead(process)
    this.#complaint = complaint.text
    let isReady = false
    const kill = async () => {
      await process.kill()
      if (!isReady) await complaint.ended()
    }
    this.#link = new InterpreterLink({ ...process, language, exited: ended, kill })
    // A shell says nothing when it is ready; the first moments of its script may go uncounted.
    this.ready = language === 'shell' ? this.#link.ready : this.#link.ready.then(() => process.settled)
    this.ready.then(
      () => {
        isReady = true
      },
      () => {}, // A run tells the same.
    )
    this.exited = process.exited.then(() => {
      watch.stop()
      disk.release(dirs)
    })
  }

  get isOver(): boolean {
    return this.#link.isOver
  }

  async run(request: RunRequest, take: TakeOutput): Promise<RunOutcome> {
    const { oomKills } = this.#process.hits()
    const outcome = await this.#link.run(request, { take })
    if (outcome.status !== 'failed') return outcome
    if (this.#hasEnded && !(await this.#hasRun())) throw this.startFailure('the interpreter did not run')
    if (this.#diskError) return { ...outcome, error: this.#diskError }
    return this.#process.hits().oomKills > oomKills ? asOutOfMemory(outcome, this.#limits.memoryMb) : outcome
  }

  async interrupt(): Promise<void> {
    this.#link.interrupt()
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  /** What was said meanwhile names paths of the host: that is for the log. */
  startFailure(reason: string): AshError {
    const cause = new Error(this.#complaint().trim() || 'no message')
    return new AshError('sandbox_start_failed', `The sandbox did not start: ${reason}`, { cause })
  }

  async #stop(): Promise<void> {
    await this.#link.stop()
    await this.#process.kill()
    await this.exited
  }

  async #hasRun(): Promise<boolean> {
    if (!this.#process.hasRun()) await this.#process.exited // What says so may still be on its way.
    return this.#process.hasRun()
  }

  #watch({ dirs, limits, disk, onLimit }: DirectOptions): LimitWatch {
    let state: DiskState = 'ok'
    const counters = {
      hits: () => this.#process.hits(),
      outputExcesses: () => 0,
      diskState: async () => {
        state = await disk.stateOf(dirs, limits.diskMb)
        return state
      },
    }
    return new LimitWatch(counters, limits, (hit) => {
      onLimit?.(hit)
      if (hit.code !== 'disk_full' || state !== 'exceeded') return
      const message = `Workspace and home hold more than the ${limits.diskMb} MB allowed, so the code was killed`
      this.#diskError = { name: 'DiskFull', message }
      this.#process.kill().catch(() => {}) // Told to whoever stops it.
    })
  }
}

function keepHead({ stderr }: Pick<InterpreterProcess, 'stderr'>) {
  let head = ''
  const listen = (chunk: Buffer) => {
    head += chunk.toString('utf8').slice(0, MAX_COMPLAINT_CHARS - head.length)
    if (head.length >= MAX_COMPLAINT_CHARS) stderr.off('data', listen)
  }
  stderr.on('data', listen)
  const closed = new Promise((resolve) => stderr.once('close', resolve))
  return {
    text: () => head,
    ended: () => Promise.race([closed, delay(LAST_WORDS_MS, undefined, { ref: false })]),
  }
}
