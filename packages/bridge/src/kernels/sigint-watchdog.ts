import process from 'node:process'
import { clearInterval, setInterval } from 'node:timers'

const POLL_MS = 20
const { listenerCount, removeAllListeners } = process

interface NodeWatchdog {
  startSigintWatchdog(): void
  stopSigintWatchdog(): boolean
  watchdogHasPendingSigint(): boolean
}

/**
 * Takes every SIGINT, from the start on. A listener of `process` would not do: it is not called while code loops, and
 * Node takes it off around code that a signal may break, which leaves moments in which a signal ends the process. So
 * the watchdog that breaks such code is kept awake all the time.
 */
export class SigintWatchdog {
  #watchdog = (process as unknown as { binding(name: string): NodeWatchdog }).binding('contextify')

  constructor() {
    this.#watchdog.startSigintWatchdog()
  }

  /** Forgets a signal of before, and listeners of user code, which would have the next. */
  reset(): void {
    const hasListeners = listenerCount.call(process, 'SIGINT') > 0
    if (!hasListeners && !this.#watchdog.watchdogHasPendingSigint()) return
    removeAllListeners.call(process, 'SIGINT')
    this.#watchdog.stopSigintWatchdog()
    this.#watchdog.startSigintWatchdog()
  }

  /** Calls back once for a signal that broke no code, until the returned function is called. */
  watch(onSignal: () => void): () => void {
    const timer = setInterval(() => {
      if (!this.#watchdog.watchdogHasPendingSigint()) return
      clearInterval(timer)
      onSignal()
    }, POLL_MS)
    timer.unref()
    return () => clearInterval(timer)
  }
}
