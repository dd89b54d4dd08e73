import type { Duplex } from 'node:stream'
import {
  AshError,
  type BridgeCommand,
  type BridgeEvent,
  bridgeError,
  decodeEvent,
  encodeLine,
  LineSplitter,
  MAX_LINE_BYTES,
  MAX_OUTSTANDING_COMMANDS,
  ProtocolError,
  type TerminalEvent,
  UNSOLICITED,
} from '@ash-ai/shared'
import { OutputMeter } from './output-meter.ts'

const HIGH_WATER_CHARS = 4 * 1024 * 1024

/** How often a bridge with work is asked for a sign of life, and how long it may give none. */
export interface Pulse {
  pingIntervalMs: number
  pongTimeoutMs: number
}
const PULSE: Pulse = { pingIntervalMs: 5_000, pongTimeoutMs: 30_000 }

type CommandInput = BridgeCommand extends infer Command
  ? Command extends unknown
    ? Omit<Command, 'id'>
    : never
  : never

type StreamEvent = Exclude<BridgeEvent, TerminalEvent>

/** Takes an event; what follows waits for as long as it returns a promise. */
export type TakeEvent = (event: StreamEvent) => Promise<void> | void

interface Received {
  event: BridgeEvent
  chars: number
}

/** Where the events of one command go, each after the one before it was taken. */
class Inbox {
  readonly take: TakeEvent
  readonly ended = Promise.withResolvers<TerminalEvent>()
  isBusy = false
  /** The connection is over; told when everything that came before is taken. */
  failure: AshError | undefined
  #waiting: Received[] = []
  #next = 0

  constructor(take: TakeEvent) {
    this.take = take
    this.ended.promise.catch(() => {}) // Told to whoever runs the command; of unsolicited events nobody does.
  }

  push(received: Received): void {
    this.#waiting.push(received)
  }

  /** Not `Array.shift`, which moves all the others up: a turn held back has many. */
  shift(): Received | undefined {
    const received = this.#waiting[this.#next++]
    if (received === undefined || this.#next * 2 > this.#waiting.length) {
      this.#waiting.splice(0, this.#next)
      this.#next = 0
    }
    return received
  }
}

/**
 * One connection to one bridge. Sends commands and hands each its own events; reads no further while events
 * wait to be taken, so that pressure reaches the SDK. What does not follow the protocol ends the connection.
 */
export class BridgeClient {
  /** Resolves when the bridge says it is ready. */
  readonly ready: Promise<void>
  /** Resolves with the reason when the connection is over. */
  readonly closed: Promise<AshError>
  readonly #stream: Duplex
  readonly #commands = new Map<string, Inbox>()
  /** Nobody takes these at first. */
  #unsolicited = new Inbox(() => {})
  readonly #watchdog: NodeJS.Timeout
  readonly #explainEnd: () => Promise<AshError>
  readonly #pongTimeoutMs: number
  readonly #output: OutputMeter
  /** Runs while nothing is read because too much came. */
  #throttle: NodeJS.Timeout | undefined
  #isReady: () => void = () => {}
  #isClosed: (error: AshError) => void = () => {}
  #failure: AshError | undefined
  #nextId = 1
  #queuedChars = 0
  #lastHeardMs = performance.now()
  /** The sandbox is frozen: nothing can come. */
  #isHeld = false

  /** `explainEnd` says why the other side went away, once that is known. */
  constructor(
    stream: Duplex,
    explainEnd: () => Promise<AshError> = async () => sandboxDied(),
    { pingIntervalMs, pongTimeoutMs }: Pulse = PULSE,
    outputMbPerSecond = Number.POSITIVE_INFINITY,
  ) {
    this.#stream = stream
    this.#unsolicited.isBusy = true
    this.#explainEnd = explainEnd
    this.#pongTimeoutMs = pongTimeoutMs
    this.#output = new OutputMeter(outputMbPerSecond)
    this.ready = new Promise((resolve) => {
      this.#isReady = resolve
    })
    this.closed = new Promise((resolve) => {
      this.#isClosed = resolve
    })
    this.#listen()
    this.#watchdog = setInterval(() => this.#checkPulse(), pingIntervalMs).unref()
  }

  get isClosed(): boolean {
    return this.#failure !== undefined
  }

  /** How often the bridge was slowed down because it sent more than its rate. */
  get outputExcesses(): number {
    return this.#output.excesses
  }

  /** Sends a command and hands its events to `take`; resolves with the one that ends it. */
  async run(command: CommandInput, take: TakeEvent = () => {}): Promise<TerminalEvent> {
    if (this.#failure) throw this.#failure
    if (this.#commands.size >= MAX_OUTSTANDING_COMMANDS) throw new Error('too many commands under way')
    if (this.#commands.size === 0) this.#lastHeardMs = performance.now()
    const id = String(this.#nextId++)
    const line = encodeCommand({ ...command, id } as BridgeCommand)
    const inbox = new Inbox(take)
    this.#commands.set(id, inbox)
    this.#stream.write(line)
    try {
      return await inbox.ended.promise
    } finally {
      this.#commands.delete(id)
      this.#forget(inbox)
    }
  }

  /** Hands on the events that belong to no command. Rejects when the connection is over or `take` fails. */
  async takeUnsolicited(take: TakeEvent): Promise<void> {
    if (this.#failure) throw this.#failure
    const early = this.#unsolicited
    const inbox = new Inbox(take)
    for (let next = early.shift(); next !== undefined; next = early.shift()) inbox.push(next)
    this.#unsolicited = inbox
    this.#handOn(inbox)
    try {
      await inbox.ended.promise
    } finally {
      this.#forget(inbox)
    }
  }

  /** Sends a command whose only event is its answer. Throws what an `error` event says. */
  async call(command: CommandInput): Promise<unknown> {
    const end = await this.run(command)
    if (end.ev === 'error') throw bridgeError(end)
    return end.ev === 'result' ? end.data : undefined
  }

  /** From here on silence means nothing: the sandbox is stopped on purpose. */
  hold(): void {
    this.#isHeld = true
  }

  /** Silence counts again, from now. */
  letGo(): void {
    this.#isHeld = false
    this.#lastHeardMs = performance.now()
  }

  /** Ends the connection; commands under way fail with `reason`. */
  close(reason: AshError): void {
    if (this.#failure) return
    this.#failure = reason
    clearInterval(this.#watchdog)
    clearTimeout(this.#throttle)
    this.#stream.destroy()
    for (const inbox of [...this.#commands.values(), this.#unsolicited]) {
      inbox.failure = reason
      this.#handOn(inbox)
    }
    this.#isClosed(reason)
  }

  #listen(): void {
    const lines = new LineSplitter()
    this.#stream.on('data', (chunk: Buffer) => {
      const startedMs = performance.now()
      this.#lastHeardMs = startedMs
      try {
        for (const line of lines.push(chunk)) this.#receive(decodeEvent(line), line.length)
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error
        this.close(new AshError('bridge_protocol_error', `The sandbox broke the protocol: ${error.message}`))
      }
      const pauseMs = this.#output.pauseAfter(chunk.length, performance.now() - startedMs)
      if (pauseMs > 0) this.#readNothingFor(pauseMs)
    })
    let hasEnded = false
    const ended = () => {
      if (hasEnded || this.#failure) return
      hasEnded = true
      this.#explainEnd().then(
        (reason) => this.close(reason),
        () => this.close(sandboxDied()),
      )
    }
    this.#stream.on('end', ended).on('close', ended).on('error', ended)
  }

  #receive(event: BridgeEvent, chars: number): void {
    if (event.ev === 'ready') this.#isReady()
    const inbox = event.id === UNSOLICITED ? this.#unsolicited : this.#commands.get(event.id)
    if (!inbox) {
      // Fine for a command that nobody waits for any more, such as a ping or an abandoned exec.
      if (this.#wasSent(event.id)) return
      throw new ProtocolError('an event for a command that was never sent')
    }
    inbox.push({ event, chars })
    this.#queuedChars += chars
    this.#handOn(inbox)
    if (this.#queuedChars > HIGH_WATER_CHARS) this.#stream.pause()
  }

  /** In order, and without a pause as long as none is asked for: most of what comes needs none. */
  #handOn(inbox: Inbox): void {
    if (inbox.isBusy) return
    for (let next = inbox.shift(); next !== undefined; next = inbox.shift()) {
      this.#taken(next.chars)
      const busy = this.#hand(inbox, next.event)
      if (!busy) continue
      inbox.isBusy = true
      busy.then(
        () => {
          inbox.isBusy = false
          this.#handOn(inbox)
        },
        (error: unknown) => inbox.ended.reject(error),
      )
      return
    }
    if (inbox.failure) inbox.ended.reject(inbox.failure)
  }

  #hand(inbox: Inbox, event: BridgeEvent): Promise<void> | void {
    if (isTerminal(event)) return this.#end(inbox, event)
    try {
      return inbox.take(event)
    } catch (error) {
      inbox.ended.reject(error)
    }
  }

  /** Nothing that follows belongs to the command, also if it came together with the end. */
  #end(inbox: Inbox, event: TerminalEvent): void {
    this.#commands.delete(event.id)
    inbox.ended.resolve(event)
    this.#forget(inbox)
  }

  /** Whoever takes no more leaves the rest: it must not hold back what others wait for. */
  #forget(inbox: Inbox): void {
    inbox.isBusy = true
    for (let next = inbox.shift(); next !== undefined; next = inbox.shift()) this.#taken(next.chars)
  }

  #wasSent(id: string): boolean {
    return /^p?[1-9]\d{0,15}$/.test(id) && Number(id.replace('p', '')) < this.#nextId
  }

  #taken(chars: number): void {
    this.#queuedChars -= chars
    if (!this.#stream.isPaused() || this.#throttle || this.#queuedChars > HIGH_WATER_CHARS / 2) return
    this.#readOn()
  }

  /** The socket fills, then the bridge waits, then the SDK: nothing is lost. */
  #readNothingFor(pauseMs: number): void {
    this.#stream.pause()
    this.#throttle = setTimeout(() => {
      this.#throttle = undefined
      if (this.#queuedChars <= HIGH_WATER_CHARS) this.#readOn()
    }, pauseMs)
  }

  #readOn(): void {
    this.#lastHeardMs = performance.now()
    this.#stream.resume()
  }

  /** The agent runs as the same user and can stop its bridge: a turn must not wait for ever. */
  #checkPulse(): void {
    if (this.#isHeld || this.#commands.size === 0 || this.#stream.isPaused()) return
    if (performance.now() - this.#lastHeardMs > this.#pongTimeoutMs) {
      this.close(
        new AshError('bridge_unresponsive', `The bridge was silent for ${this.#pongTimeoutMs / 1000} s`),
      )
      return
    }
    this.#stream.write(encodeLine({ cmd: 'ping', id: `p${this.#nextId++}` }))
  }
}

/** A longer line would end the bridge, and the session's sandbox with it. */
function encodeCommand(command: BridgeCommand): string {
  const line = encodeLine(command)
  if (Buffer.byteLength(line) <= MAX_LINE_BYTES) return line
  throw new AshError('payload_too_large', `A message to the sandbox may have ${MAX_LINE_BYTES} bytes`)
}

function isTerminal(event: BridgeEvent): event is TerminalEvent {
  return event.ev === 'done' || event.ev === 'error' || event.ev === 'result' || event.ev === 'pong'
}

const sandboxDied = () => new AshError('sandbox_died', 'The sandbox ended unexpectedly')
