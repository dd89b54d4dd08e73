// One line per step, with its time, for people who wait.
import { UserError } from './workspace.mjs'

const SLOW_STEP_MS = 2_000
const isTerminal = process.stdout.isTTY === true
const paint = (code, text) => (isTerminal && !process.env.NO_COLOR ? `\x1b[${code}m${text}\x1b[0m` : text)

export const bold = (text) => paint(1, text)
export const dim = (text) => paint(2, text)

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`

/** Runs a step and reports it. What `work` returns, if it is text, is added to the line. */
export async function step(name, work) {
  const startedAtMs = Date.now()
  const announce = () => process.stdout.write(isTerminal ? dim(`· ${name} …`) : `· ${name} …\n`)
  // Without a terminal the line cannot be rewritten: announce only what takes long enough to wonder about.
  const timer = isTerminal ? announce() : setTimeout(announce, SLOW_STEP_MS)
  const report = (mark, detail) => {
    clearTimeout(timer)
    const line = `${mark} ${name}${detail ? ` (${detail})` : ''} ${dim(seconds(Date.now() - startedAtMs))}`
    process.stdout.write(`${isTerminal ? '\r\x1b[K' : ''}${line}\n`)
  }
  try {
    const result = await work()
    report(paint(32, '✓'), typeof result === 'string' ? result : undefined)
    return result
  } catch (error) {
    report(paint(31, '✗'))
    throw error
  }
}

export const lastLines = (text, count) => text.trimEnd().split('\n').slice(-count).join('\n')

/** Fails a step with what the command printed. */
export function requireSuccess({ code, output, isTimeout }, what, shownLines = 40) {
  if (isTimeout)
    throw new UserError(`${what} took too long and was stopped.\n${lastLines(output, shownLines)}`)
  if (code !== 0) throw new UserError(`${what} failed (exit code ${code}):\n${lastLines(output, shownLines)}`)
}

/** The end of a script: a UserError is a message, anything else a defect with its stack. */
export function reportFailure(error) {
  console.error(`\n${error instanceof UserError ? error.message : (error.stack ?? error)}`)
  process.exitCode = 1
}
