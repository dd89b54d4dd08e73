import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { SessionEvent } from '@ash-ai/sdk'
import { BARE_ENV } from '../../support/run-process.ts'
import { isEndOfSession, isEntryId, valueOfEvent } from './log-entry.ts'
import type { LogSource } from './raw-log-reader.ts'

/**
 * Follows a log through the SDK in a process of its own. Killed, it is started again after the last event that it
 * has passed on whole, as a real client would that keeps its position.
 */
export class ClientProcess {
  readonly entries: SessionEvent[] = []
  starts = 0
  readonly ended: Promise<void>
  readonly #source: LogSource
  #child: ChildProcess | undefined
  #hasLeft = false

  constructor(source: LogSource) {
    this.#source = source
    this.ended = this.#follow()
  }

  kill(): void {
    this.#child?.kill('SIGKILL')
  }

  leave(): void {
    this.#hasLeft = true
    this.kill()
  }

  async #follow(): Promise<void> {
    while (!this.#hasLeft) {
      const { code, stderr } = await this.#run()
      if (code === 0) return
      // A server that is away for longer than the SDK waits ends the client as well; anything else is a fault.
      if (code !== null && !stderr.includes('AshConnectionError'))
        throw new Error(`the client ended: ${stderr}`)
    }
  }

  async #run(): Promise<{ code: number | null; stderr: string }> {
    this.starts++
    const program = fileURLToPath(import.meta.resolve('./log-client.ts'))
    const child = spawn(process.execPath, ['--conditions=development', program], {
      env: BARE_ENV,
      stdio: 'pipe',
    })
    this.#child = child
    const after = Number(this.entries.at(-1)?.id ?? 0)
    child.stdin.on('error', () => {}).end(JSON.stringify({ ...this.#source, after }))
    let stderr = ''
    child.stderr.setEncoding('utf8').on('data', (part: string) => {
      stderr += part
    })
    let rest = '' // Of a line that a kill has cut off: never passed on, so never seen.
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      const lines = (rest + part).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) this.#take(line)
    })
    const { promise, resolve } = Promise.withResolvers<number | null>()
    child.once('close', resolve)
    return { code: await promise, stderr }
  }

  #take(line: string): void {
    const event = JSON.parse(line) as SessionEvent
    if (isEntryId(event.id)) this.entries.push(event)
    const { type, data } = valueOfEvent(event)
    if (isEndOfSession(type, data)) this.#hasLeft = true
  }
}
