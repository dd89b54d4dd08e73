import { writeFileSync } from 'node:fs'
import type { Duplex } from 'node:stream'
import {
  AshError,
  type BridgeCommand,
  type BridgeEvent,
  type ExecuteResult,
  encodeDisplay,
  INTERPRETER_FD,
  InterpreterLink,
  type Language,
  MAX_LINE_BYTES,
  type ProcessExit,
  type RunOutcome,
  STARTING_NAMES,
  type StartResult,
} from '@ash-ai/shared'
import { childProcess } from '../late-modules.ts'
import { findProgram } from './interpreter-program.ts'
import { spawnWithOutput, type WithOutput } from './output-pipes.ts'
import { ProcessTree } from './process-tree.ts'

/** More than the runs and kernels that the server allows a session together. */
const MAX_INTERPRETERS = 20
/** A result goes to the host in pieces of this size, so that others get their turn between. */
const RESULT_PIECE_CHARS = 256 * 1024
/** How often a run is measured: first soon, since most are short, and of what is gone there is nothing to see. */
const FIRST_SAMPLE_MS = 5
const SAMPLE_MS = 250
/** The first to go when memory runs out, so that the bridge can tell of it. */
const OOM_SCORE = '1000'
/** Says so of itself, then becomes what its arguments say. */
const RAISE_OOM_SCORE = `{ echo ${OOM_SCORE} >/proc/self/oom_score_adj; } 2>/dev/null
unset PWD OLDPWD SHLVL; exec "$@"`

type OutputEvent = Extract<BridgeEvent, { ev: 'output' }>
type SendOutput = (event: Omit<OutputEvent, 'ev' | 'id'>) => Promise<void> | undefined

interface Running {
  link: InterpreterLink
  tree: ProcessTree
  /** Variables of the session, where it was started before there was one. */
  lateEnv?: Record<string, string>
}

/** An interpreter that was started before it was known whose it would be. */
interface Early {
  language: Language
  env: Record<string, string>
  started: StartResult
}

/** The interpreters of one session. */
export class Interpreters {
  readonly #cwd: string
  readonly #kernelsDir: string
  readonly #running = new Map<string, Running>()
  #early: Early | undefined
  #starting = 0

  constructor(cwd: string, kernelsDir: string) {
    this.#cwd = cwd
    this.#kernelsDir = kernelsDir
  }

  /** Starts one for whoever asks first, and waits until it is up. */
  async startEarly(language: Language, env: Record<string, string>): Promise<void> {
    const started = await this.start(language, env)
    await this.#running.get(started.interpreter)?.link.ready
    this.#early = { language, env, started }
  }

  async start(language: Language, env: Record<string, string>): Promise<StartResult> {
    const early = this.#takeEarly(language, env)
    if (early) return early
    if (this.#running.size + this.#starting >= MAX_INTERPRETERS)
      throw new AshError('too_many_kernels', `A session may have ${MAX_INTERPRETERS} interpreters at once`)
    const [program, ...args] = preferredForOom(language, findProgram(language, env, this.#kernelsDir))
    const id = crypto.randomUUID()
    this.#starting++
    try {
      const started = await spawnWithOutput((...output) =>
        childProcess().spawn(program, args, {
          cwd: this.#cwd,
          // The mark stands first, where it is found soonest, and no other variable takes its place.
          env: Object.assign({ ASH_RUN: id }, env, { ASH_RUN: id }),
          detached: true,
          stdio: ['ignore', ...output, 'pipe'],
        }),
      )
      const { child } = started
      if (child.pid === undefined) throw await new Promise((resolve) => child.once('error', resolve))
      this.#hold(id, language, started, child.pid)
      return { interpreter: id, pid: child.pid }
    } finally {
      this.#starting--
    }
  }

  /** Runs one request; its output goes to `send`, its results too, at the end. */
  async execute(
    { interpreter, request, maxOutputBytes }: Extract<BridgeCommand, { cmd: 'execute' }>,
    send: SendOutput,
  ): Promise<ExecuteResult> {
    const running = this.#running.get(interpreter)
    if (running === undefined)
      throw new AshError('interpreter_gone', 'The interpreter ended before the run began')
    const { lateEnv } = running
    delete running.lateEnv
    const sampling = sampleRegularly(running.tree)
    const outcome = await running.link
      .run(lateEnv ? { ...request, sessionEnv: lateEnv } : request, {
        take: ({ stream, text }) => send({ stream, data: text }),
        maxOutputBytes,
      })
      .finally(sampling.stop)
    return sendResults(outcome, send)
  }

  interrupt(interpreter: string): void {
    this.#running.get(interpreter)?.link.interrupt()
  }

  async stop(interpreter: string): Promise<void> {
    await this.#running.get(interpreter)?.link.stop()
  }

  async close(): Promise<void> {
    await Promise.all([...this.#running.keys()].map((id) => this.stop(id)))
  }

  /** Only where it is as if it had been started now. */
  #takeEarly(language: Language, env: Record<string, string>): StartResult | undefined {
    const early = this.#early
    if (early?.language !== language || !hasSameStart(early.env, env)) return undefined
    this.#early = undefined
    const running = this.#running.get(early.started.interpreter)
    if (!running || running.link.isOver) return undefined
    running.lateEnv = env
    return early.started
  }

  #hold(id: string, language: Language, { child, stdout, stderr }: WithOutput, pid: number): void {
    preferForOom(pid)
    const tree = new ProcessTree(pid, `ASH_RUN=${id}`)
    const exited = new Promise<ProcessExit>((resolve) => {
      child.once('exit', (code, signal) => resolve({ code, signal }))
    })
    const channel = child.stdio[INTERPRETER_FD] as Duplex
    const link = new InterpreterLink({
      language,
      stdout,
      stderr,
      channel,
      exited,
      // Also called once it has ended by itself.
      kill: () => tree.kill().finally(() => this.#running.delete(id)),
      interrupt: () => interruptGroup(pid),
      measure: () => tree.measure(),
    })
    this.#running.set(id, { link, tree })
  }
}

const hasSameStart = (one: Record<string, string>, other: Record<string, string>) =>
  Object.keys({ ...one, ...other })
    .filter((name) => STARTING_NAMES.test(name))
    .every((name) => one[name] === other[name])

function interruptGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGINT')
  } catch {
    // It has just ended.
  }
}

function preferForOom(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, OOM_SCORE)
  } catch {
    // Not for this user to say.
  }
}

/** Of a program that nobody may read nobody may say it: Node is one. */
function preferredForOom(language: Language, command: [string, ...string[]]): [string, ...string[]] {
  return language === 'javascript' ? ['/bin/sh', '-c', RAISE_OOM_SCORE, 'sh', ...command] : command
}

/** Also keeps in mind who belongs to the tree. */
function sampleRegularly(tree: ProcessTree): { stop: () => void } {
  let timer: NodeJS.Timeout
  const next = (afterMs: number) => {
    timer = setTimeout(() => {
      tree.measure()
      next(Math.min(SAMPLE_MS, 2 * afterMs))
    }, afterMs)
  }
  next(FIRST_SAMPLE_MS)
  return { stop: () => clearTimeout(timer) }
}

async function sendResults(
  { result, results, ...rest }: RunOutcome,
  send: SendOutput,
): Promise<ExecuteResult> {
  let { truncated } = rest
  for (const one of results) {
    const data = encodeDisplay(one)
    // As text within JSON it grows; what fits twice into half a line fits.
    if (Buffer.byteLength(data) <= MAX_LINE_BYTES / 2 - 1024) await send({ stream: 'display', data })
    else truncated = true
  }
  for (let at = 0; at < (result?.length ?? 0); at += RESULT_PIECE_CHARS) {
    await send({ stream: 'result', data: result?.slice(at, at + RESULT_PIECE_CHARS) ?? '' })
  }
  return { ...rest, truncated }
}
