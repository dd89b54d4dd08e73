import process from 'node:process'
import { clearTimeout, setTimeout } from 'node:timers'

/** Most runs are over by then, and need none. */
const START_AFTER_MS = 100
const RUNNING = 1
const { getBuiltinModule } = process
const { notify, store } = Atomics

/** While a run is under way, a signal that stays unnoticed for a quarter of a second tells that the code loops. */
const PROGRAM = `const { Session } = require('inspector')
const { workerData: state } = require('worker_threads')
const watchdog = process.binding('contextify')
for (;;) {
  Atomics.wait(state, 0, 0)
  let unnoticed = 0
  while (Atomics.load(state, 0) === ${RUNNING}) {
    Atomics.wait(state, 0, ${RUNNING}, 50)
    unnoticed = watchdog.watchdogHasPendingSigint() ? unnoticed + 1 : 0
    if (unnoticed !== 5) continue
    const session = new Session()
    session.connectToMainThread()
    session.post('Runtime.terminateExecution')
    Atomics.wait(state, 0, ${RUNNING}, 200)
    session.disconnect()
  }
}`

/**
 * Breaks code that loops after it has awaited something, which no signal reaches: from another thread. That is started
 * by the first run that takes longer and leaves the loop of the process a turn.
 */
export class LoopBreaker {
  #state = new Int32Array(new SharedArrayBuffer(4))
  #isStarted = false

  /** Until the returned function is called. */
  watch(): () => void {
    this.#set(RUNNING)
    const timer = this.#isStarted ? undefined : setTimeout(() => this.#start(), START_AFTER_MS)
    timer?.unref()
    return () => {
      clearTimeout(timer)
      this.#set(0)
    }
  }

  #set(state: number): void {
    store(this.#state, 0, state)
    notify(this.#state, 0)
  }

  #start(): void {
    this.#isStarted = true
    try {
      const { Worker } = getBuiltinModule('node:worker_threads')
      // Nothing that the code has set for Node is meant for it.
      const options = { eval: true, workerData: this.#state, env: {}, execArgv: [] }
      new Worker(PROGRAM, options).on('error', () => {}).unref()
    } catch {
      // No room for another thread: then such code is killed.
    }
  }
}
