import { Worker } from 'node:worker_threads'

/** Parsing this takes about a millisecond; more is left to a thread. */
const INLINE_MAX_CHARS = 256 * 1024
const THREAD_TIMEOUT_MS = 30_000
/** A result of 10 MB can become many times that in memory. */
const THREAD_MEMORY_MB = 1024
const MAX_THREADS = 2
/** As text: a file of its own would have to be found by name wherever the server is bundled to. */
const THREAD = `
const { parentPort, workerData } = require('node:worker_threads')
let isValid = true
try { JSON.parse(workerData) } catch { isValid = false }
parentPort.postMessage(isValid)`

/** Whether the text is JSON. It comes from inside a sandbox and goes into replies as it is. */
export async function isJson(text: string): Promise<boolean> {
  if (text.length > INLINE_MAX_CHARS) return isJsonByThread(text)
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

let threads = 0
const waiting: (() => void)[] = []

async function isJsonByThread(text: string): Promise<boolean> {
  if (threads >= MAX_THREADS) await new Promise<void>((resolve) => waiting.push(resolve))
  else threads++
  try {
    return await runThread(text)
  } finally {
    const next = waiting.shift()
    if (next) next()
    else threads--
  }
}

/** A thread that takes too much memory or time says no by ending. */
function runThread(text: string): Promise<boolean> {
  return new Promise((resolve) => {
    const worker = new Worker(THREAD, {
      eval: true,
      workerData: text,
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: THREAD_MEMORY_MB },
    })
    const late = setTimeout(() => void worker.terminate(), THREAD_TIMEOUT_MS)
    worker.on('message', (isValid: unknown) => resolve(isValid === true))
    worker.on('error', () => resolve(false))
    worker.on('exit', () => {
      clearTimeout(late)
      resolve(false)
    })
  })
}
