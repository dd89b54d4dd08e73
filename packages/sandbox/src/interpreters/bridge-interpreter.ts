import {
  AshError,
  bridgeError,
  brokenChannel,
  type ExecuteResult,
  isAshError,
  type Language,
  MAX_RUN_OUTPUT_BYTES,
  ProtocolError,
  type RunOutcome,
  type RunRequest,
  type StartResult,
} from '@ash-ai/shared'
import type { BridgeClient } from '../bridge-client.ts'
import type { Enclosure } from '../limits/enclosure.ts'
import type { Sandbox } from '../manager.ts'
import type { Interpreter, TakeOutput } from './interpreter.ts'
import { decodeOutcome, RunIntake } from './run-intake.ts'

/** The bridge ends a run in time by itself; one that does not has been tampered with. */
const GUARD_MS = 10_000
const STOP_TIMEOUT_MS = 5_000

/** An interpreter below the bridge of a sandbox, which may have others beside it. */
export class BridgeInterpreter implements Interpreter {
  readonly language: Language
  readonly #bridge: BridgeClient
  readonly #id: string
  readonly #enclosure: Enclosure | undefined
  #isOver = false
  #isRunning = false
  #clearing: Promise<void> | undefined

  private constructor(
    language: Language,
    bridge: BridgeClient,
    id: string,
    enclosure: Enclosure | undefined,
  ) {
    this.language = language
    this.#bridge = bridge
    this.#id = id
    this.#enclosure = enclosure
  }

  /** It may not be ready for code yet, which the first run then waits for. */
  static async start(
    sandbox: Pick<Sandbox, 'bridge' | 'enclose'>,
    language: Language,
    env: Record<string, string> = {},
  ): Promise<BridgeInterpreter> {
    const { bridge } = sandbox
    const { interpreter, pid } = believe(
      bridge,
      decodeStart,
      await bridge.call({ cmd: 'start', language, env }),
    )
    try {
      return new BridgeInterpreter(language, bridge, interpreter, await sandbox.enclose(pid))
    } catch (error) {
      await bridge.call({ cmd: 'stop', interpreter }).catch(() => {})
      throw error
    }
  }

  get isOver(): boolean {
    return this.#isOver
  }

  async run(request: RunRequest, take: TakeOutput): Promise<RunOutcome> {
    if (this.#isOver) throw new AshError('interpreter_gone', 'The interpreter ended before the run began')
    if (this.#isRunning) throw new Error('the interpreter is at work')
    this.#isRunning = true
    const intake = new RunIntake(take)
    try {
      const outcome = await this.#execute(request, intake)
      if (outcome.isOver) await this.#clear(!intake.isBroken)
      return outcome
    } catch (error) {
      if (isAshError(error, 'payload_too_large')) throw error // Refused before it was sent.
      if (isAshError(error, 'bridge_unresponsive')) await this.#enclosure?.kill().catch(() => {})
      await this.#clear(isAshError(error, 'interpreter_gone'))
      throw error
    } finally {
      this.#isRunning = false
    }
  }

  async interrupt(): Promise<void> {
    if (!this.#isOver) await this.#bridge.call({ cmd: 'cancel', interpreter: this.#id, how: 'interrupt' })
  }

  stop(): Promise<void> {
    return this.#clear(false)
  }

  async #execute(request: RunRequest, intake: RunIntake): Promise<RunOutcome> {
    const cpuBefore = this.#cpuMs()
    const data = await this.#send(request, intake)
    const said = believe(this.#bridge, decodeOutcome, data)
    const cpuAfter = this.#cpuMs()
    const isKnown = cpuBefore !== undefined && cpuAfter !== undefined
    const metrics = { ...said.metrics, ...(isKnown && { cpuMs: Math.max(0, cpuAfter - cpuBefore) }) }
    return combine({ ...said, metrics }, intake)
  }

  async #send(request: RunRequest, intake: RunIntake): Promise<unknown> {
    const command = { cmd: 'execute', interpreter: this.#id, request } as const
    let isAbandoned = false
    const running = this.#bridge.run({ ...command, maxOutputBytes: MAX_RUN_OUTPUT_BYTES }, (event) => {
      if (isAbandoned) throw new Error('nobody waits for the run any more')
      if (event.ev === 'output') return intake.take(event)
    })
    try {
      const end = await inTime(request.timeoutMs + GUARD_MS, running)
      if (end.ev === 'error') throw bridgeError(end)
      return end.ev === 'result' ? end.data : undefined
    } finally {
      isAbandoned = true
    }
  }

  /** Ends what there is left of it. `isGone`: the bridge has said so. */
  #clear(isGone: boolean): Promise<void> {
    this.#isOver = true
    this.#clearing ??= this.#end(isGone)
    return this.#clearing
  }

  async #end(isGone: boolean): Promise<void> {
    if (!isGone && !this.#bridge.isClosed) {
      const stopped = this.#bridge.call({ cmd: 'stop', interpreter: this.#id })
      await inTime(STOP_TIMEOUT_MS, stopped).catch(() => {}) // A bridge that does not answer meets its own end.
    }
    // Where that fails, the end of the sandbox does the same.
    await this.#enclosure?.kill().catch(() => {})
    await this.#enclosure?.remove().catch(() => {})
  }

  /** Of everything in it, counted by the kernel; a bridge can only say. */
  #cpuMs(): number | undefined {
    return this.#enclosure?.cpuMs()
  }
}

function combine(said: ExecuteResult, { isBroken, hasDropped, result, results }: RunIntake): RunOutcome {
  const truncated = said.truncated || hasDropped
  if (isBroken)
    return { ...said, status: 'failed', error: brokenChannel(), results: [], truncated, isOver: true }
  return { ...said, ...(result !== undefined && { result }), results, truncated }
}

function decodeStart(data: unknown): StartResult {
  const { interpreter, pid } = (data ?? {}) as Record<string, unknown>
  if (typeof interpreter !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(interpreter))
    throw new ProtocolError('an interpreter without an id')
  if (!Number.isInteger(pid) || (pid as number) < 2)
    throw new ProtocolError('an interpreter without a process')
  return { interpreter, pid: pid as number }
}

/** A bridge that answers with something else is as bad as one that breaks the protocol. */
function believe<Value>(bridge: BridgeClient, decode: (data: unknown) => Value, data: unknown): Value {
  try {
    return decode(data)
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    const reason = new AshError('bridge_protocol_error', `The sandbox broke the protocol: ${error.message}`)
    bridge.close(reason)
    throw reason
  }
}

async function inTime<Value>(maxMs: number, work: Promise<Value>): Promise<Value> {
  const { promise, reject } = Promise.withResolvers<never>()
  const late = () => new AshError('bridge_unresponsive', `The bridge did not end within ${maxMs / 1000} s`)
  const timer = setTimeout(() => reject(late()), maxMs)
  try {
    return await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}
