import { BridgeInterpreter, type Interpreter } from '@ash-ai/sandbox'
import { AshError, type Language } from '@ash-ai/shared'
import type { LiveSession } from '../sessions/live-sessions.ts'

const MAX_KERNELS = 8

/** An interpreter that keeps its variables between runs. */
export interface Kernel {
  readonly language: Language
  readonly name: string
  readonly interpreter: Interpreter
  runs: number
  isBusy: boolean
  readonly startedAt: number
  lastUsedAt: number
}

/** The kernels of one live session; they end with its sandbox. */
export class Kernels {
  readonly #live: LiveSession
  readonly #kernels = new Map<string, Promise<Kernel>>()
  /** Those of them that have started. */
  readonly #started = new Map<string, Kernel>()

  constructor(live: LiveSession) {
    this.#live = live
  }

  async list(): Promise<Kernel[]> {
    const started = await Promise.allSettled(this.#kernels.values())
    return started
      .flatMap((kernel) => (kernel.status === 'fulfilled' ? [kernel.value] : []))
      .filter(({ interpreter }) => !interpreter.isOver)
  }

  /** It is there, alive as far as anybody knows, and has nothing to do. */
  isIdle(language: Language, name: string): boolean {
    const kernel = this.#started.get(keyOf(language, name))
    return kernel !== undefined && !kernel.isBusy && !kernel.interpreter.isOver
  }

  /** The kernel, if it is there and alive. */
  async find(language: Language, name: string): Promise<Kernel | undefined> {
    const kernel = await this.#kernels.get(keyOf(language, name))?.catch(() => undefined)
    return kernel && !kernel.interpreter.isOver ? kernel : undefined
  }

  /** The kernel, started where it is not there; says whether it was. Throws where another would be too many. */
  async get(language: Language, name: string): Promise<{ kernel: Kernel; isNew: boolean }> {
    this.#forgetEnded()
    // Nothing is awaited between here and the start: two that ask at once get the same.
    const known = this.#kernels.get(keyOf(language, name))
    const kernel = await (known ?? this.#start(language, name))
    return { kernel, isNew: known === undefined }
  }

  /** Takes the kernel out, without ending it. One that has taken its place stays. */
  forget(kernel: Kernel): void {
    const key = keyOf(kernel.language, kernel.name)
    if (this.#started.get(key) !== kernel) return
    this.#kernels.delete(key)
    this.#started.delete(key)
  }

  #start(language: Language, name: string): Promise<Kernel> {
    if (this.#kernels.size >= MAX_KERNELS)
      throw new AshError('too_many_kernels', `A session has at most ${MAX_KERNELS} kernels; delete one`)
    const key = keyOf(language, name)
    const started = BridgeInterpreter.start(this.#live.sandbox, language).then((interpreter): Kernel => {
      const now = Date.now()
      const kernel = { language, name, interpreter, runs: 0, isBusy: false, startedAt: now, lastUsedAt: now }
      this.#started.set(key, kernel)
      return kernel
    })
    this.#kernels.set(key, started)
    started.catch(() => this.#kernels.delete(key))
    return started
  }

  #forgetEnded(): void {
    for (const kernel of [...this.#started.values()]) if (kernel.interpreter.isOver) this.forget(kernel)
  }
}

const keyOf = (language: Language, name: string) => `${language} ${name}`

const kernelsOfSessions = new WeakMap<LiveSession, Kernels>()

export function kernelsOf(live: LiveSession): Kernels {
  const kernels = kernelsOfSessions.get(live) ?? new Kernels(live)
  kernelsOfSessions.set(live, kernels)
  return kernels
}
