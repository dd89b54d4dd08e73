import { Buffer } from 'node:buffer'
import Module from 'node:module'
import process from 'node:process'
import { setImmediate } from 'node:timers'
import { MAX_RESULTS_BYTES, type MimeBundle, type RunEnd, type RunRequest } from '@ash-ai/shared'
import { CellRunner } from './cell-runner.ts'
import { callHandler, type Handler } from './handler-call.ts'
import { handlerContext, monotonicMs } from './handler-context.ts'
import { displayBundle, resultJson, valueBundle, valueJson } from './javascript-displays.ts'
import { errorOf, RunFailure, tracebackOf } from './javascript-errors.ts'
import { KernelChannel } from './kernel-channel.ts'
import { LoopBreaker } from './loop-breaker.ts'
import { SigintWatchdog } from './sigint-watchdog.ts'

// Runs JavaScript for Ash; the protocol is that of shared/src/interpreter.ts. User code shares this realm, so whatever
// is needed after it ran is imported or taken here, before it can be replaced.
const { parse, stringify } = JSON
const { byteLength } = Buffer
const { keys } = Object
const { set, deleteProperty } = Reflect
const exit = process.exit.bind(process)
const { stderr, env: realEnv } = process
const { emit, listeners, on } = process as unknown as {
  emit: (event: string, ...given: unknown[]) => boolean
  listeners: (event: string) => unknown[]
  on: (event: string, listener: (error: unknown) => void) => unknown
}

type Request = Omit<RunRequest, 'event'> & { event?: unknown }

/** Thrown by `process.exit` where the interpreter stays. */
class ExitRequest extends Error {
  readonly code: number

  constructor(code: unknown) {
    super(`process.exit(${code})`)
    this.code = Number(code ?? process.exitCode ?? 0) | 0
  }
}

/** A run, from its request to its `done`. */
class Run {
  readonly kind: Request['kind']
  readonly deadlineMs: number
  #outcome = Promise.withResolvers<never>()
  #displayedBytes = 0

  constructor({ kind, timeoutMs }: Request) {
    this.kind = kind
    this.deadlineMs = monotonicMs() + timeoutMs
    this.#outcome.promise.catch(() => {})
  }

  /** Ends the waiting for user code, which itself may go on. */
  fail(error: unknown): void {
    this.#outcome.reject(error)
  }

  async settle<T>(work: Promise<T>): Promise<T> {
    const unwatch = sigint.watch(() => this.fail(new RunFailure('Interrupted', 'The run was interrupted')))
    try {
      return await Promise.race([work, this.#outcome.promise])
    } finally {
      unwatch()
    }
  }

  show(bundle: MimeBundle, isValue = false): void {
    const room = MAX_RESULTS_BYTES - this.#displayedBytes
    if (room < 0) return
    let json = stringify(bare(bundle))
    if (isValue && byteLength(json) > room) json = stringify(bare({ 'text/plain': bundle['text/plain'] }))
    this.#displayedBytes += byteLength(json)
    if (this.#displayedBytes <= MAX_RESULTS_BYTES) {
      channel.send(`{"display":${json}${isValue ? ',"value":true' : ''}}`)
    } else {
      const text = `Further results were dropped: together they exceed ${MAX_RESULTS_BYTES} bytes.`
      channel.send(`{"display":{"text/plain":"${text}"}}`)
    }
  }
}

const sigint = new SigintWatchdog()
const loops = new LoopBreaker()
let current: Run | undefined
let cells = 0

async function serve(line: string): Promise<void> {
  const request = (parse(line) as { run: Request }).run
  const run = new Run(request)
  current = run
  watchProcess()
  applyEnvironment(request.sessionEnv ?? {})
  const replaced = applyEnvironment(request.env ?? {})
  if (run.kind === 'script') {
    await runScript(run, request)
    return
  }
  const end = await runToEnd(run, request)
  // Rejections that nobody handles are reported after a round of the loop: they are of this run still.
  await new Promise<void>((resolve) => setImmediate(resolve))
  current = undefined
  if (run.kind === 'code') applyEnvironment(replaced)
  process.exitCode = undefined
  sigint.reset()
  sendDone(end)
}

async function runToEnd(run: Run, request: Request): Promise<RunEnd> {
  try {
    if (run.kind === 'handler') await runHandler(run, request)
    else finishValue(run, await runBreakable(run, request))
    return {}
  } catch (error) {
    if (!(error instanceof ExitRequest)) return { error: errorOf(asInterrupt(error)) }
    if (run.kind === 'code') return { exitCode: error.code }
    return { error: { name: 'Exit', message: `The code ended itself with exit code ${error.code}` } }
  }
}

async function runBreakable(run: Run, request: Request): Promise<unknown[]> {
  const unwatch = loops.watch()
  try {
    return await runCell(run, request)
  } finally {
    unwatch()
  }
}

async function runCell(run: Run, request: Request): Promise<unknown[]> {
  cells++
  const { values } = await run.settle(runner.run(request.code, `<cell ${cells}>`))
  return values
}

function finishValue(run: Run, [value]: unknown[]): void {
  if (value === undefined) return
  run.show(valueBundle(value), true)
  try {
    const json = valueJson(value)
    if (json !== undefined) channel.send(`{"result":${json}}`)
  } catch (error) {
    if (!(error instanceof RunFailure)) throw error // What is shown of it has to do.
  }
}

async function runHandler(run: Run, request: Request): Promise<void> {
  runner.reset()
  const { exports } = await run.settle(runner.run(request.code, '<handler>'))
  const handler = exports.find('handler') ?? exports.default
  if (typeof handler !== 'function')
    throw new RunFailure(
      'HandlerNotFound',
      'Define a function named handler, or export one: export async function handler(event, context) { … }',
    )
  const event = 'event' in request ? request.event : {}
  const context = handlerContext(request.context ?? {}, run.deadlineMs)
  const call = (...given: unknown[]) => runner.call(() => (handler as Handler)(event, context, ...given))
  const value = await run.settle(callHandler(call, handler.length, (onIdle) => channel.watchIdle(onIdle)))
  channel.send(`{"result":${resultJson(value)}}`)
}

/** Ends as a program does: when nothing is left to wait for, or with the first error that nobody handles. */
async function runScript(run: Run, request: Request): Promise<void> {
  channel.release()
  let end: RunEnd = { error: { name: 'Error', message: 'The code awaits something that never comes' } }
  let values: unknown[] = []
  process.once('exit', (code) => {
    if (end.error && code === 0) process.exitCode = 13 // As Node has it.
    if (!end.error) finishValue(run, values)
    current = undefined
    sendDone(end)
  })
  process.exit = (code) => {
    end = {}
    return exit(code)
  }
  try {
    values = await runCell(run, request)
    end = {}
    await run.settle(new Promise<never>(() => {}))
  } catch (error) {
    end = { error: errorOf(asInterrupt(error)) }
    exit(1)
  }
}

function sendDone({ error, exitCode }: RunEnd): void {
  channel.send(`{"done":${stringify(bare({ error: error && bare(error), exitCode }))}}`)
}

/** Without a prototype: user code may have given all objects another way to become JSON. */
const bare = (object: object): object => ({ __proto__: null, ...object })

function asInterrupt(error: unknown): unknown {
  const isInterrupt = (error as { code?: unknown } | null)?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED'
  return isInterrupt ? new RunFailure('Interrupted', 'The run was interrupted') : error
}

type Environment = Record<string, string | undefined>

/** What was set before. */
function applyEnvironment(given: Environment): Environment {
  const replaced: Environment = {}
  const env = (process.env as Environment | null) ?? realEnv // User code may have put another in its place.
  for (const name of keys(given)) {
    replaced[name] = env[name]
    if (given[name] === undefined) deleteProperty(env, name)
    else set(env, name, given[name])
  }
  // Node reads it at the start only.
  if ('NODE_PATH' in given) (Module as unknown as { _initPaths: () => void })._initPaths()
  return replaced
}

/** Code that listens itself is left to it. */
function onUncaught(error: unknown): void {
  if (error instanceof ExitRequest || isAlone('uncaughtException')) report(error)
}

function onRejection(error: unknown): void {
  if (error instanceof ExitRequest) report(error)
  else if (!isAlone('unhandledRejection')) return
  else if (isAlone('uncaughtException')) report(error)
  else emit.call(process, 'uncaughtException', error, 'unhandledRejection') // As Node has it.
}

const isAlone = (event: string) => listeners.call(process, event).length <= 1

/** A program would end here. An interpreter says what happened and goes on. */
function report(error: unknown): void {
  if (error instanceof ExitRequest || (current !== undefined && current.kind !== 'code')) current?.fail(error)
  else stderr.write(`Uncaught ${tracebackSafely(error)}\n`)
}

function tracebackSafely(error: unknown): string {
  try {
    return tracebackOf(error)
  } catch {
    return errorOf(error).message
  }
}

/** Before each run: the code of an earlier one may have removed them. */
function watchProcess(): void {
  sigint.reset()
  const watched = { uncaughtException: onUncaught, unhandledRejection: onRejection }
  for (const [event, listener] of Object.entries(watched)) {
    if (!listeners.call(process, event).includes(listener)) on.call(process, event, listener)
  }
  process.exit = (code) => {
    throw new ExitRequest(code)
  }
}

function display(value: unknown, mime?: unknown): void {
  current?.show(displayBundle(value, mime))
}

/** Output that is waiting in a stream is lost when the process ends. */
function makeBlocking(stream: NodeJS.WriteStream): void {
  const { _handle } = stream as { _handle?: { setBlocking?: (isBlocking: boolean) => void } }
  _handle?.setBlocking?.(true)
}

makeBlocking(process.stdout)
makeBlocking(stderr)
Object.defineProperty(globalThis, 'display', { value: display, writable: true, configurable: true })
let queue: Promise<void> = Promise.resolve()
const channel = new KernelChannel(
  (line) => {
    queue = queue.then(() => serve(line)).catch(() => exit(1))
  },
  () => exit(0),
)
watchProcess()
channel.send('{"ready":true}')
// A request may wait meanwhile.
const runner = new CellRunner()
