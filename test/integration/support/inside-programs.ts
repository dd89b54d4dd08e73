import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { AshClient } from '@ash-ai/sdk'
import { eventually } from './sandbox-processes.ts'

export const APP_PORT = 8000

/** A session in which `preview-app.py` runs. */
export async function createAppSession(
  client: AshClient,
  options: { idleTimeout?: number } = {},
): Promise<string> {
  const { id } = await client.sessions.create({ template: 'python', ...options })
  await client.files.write(id, 'app.py', await readFile(join(import.meta.dirname, 'preview-app.py')))
  await serve(client, id, APP_PORT, ['python3', 'app.py', String(APP_PORT)])
  return id
}

/** Leaves a program running that serves a port; returns when it does. */
export async function serve(
  client: AshClient,
  sessionId: string,
  port: number,
  words: string[],
): Promise<void> {
  await leaveRunning(client, sessionId, words)
  const isThere = (open: { port: number }[]) => open.some((one) => one.port === port)
  await eventually(() => client.ports.list(sessionId), isThere, 30_000)
}

/** One that has not left the group of the command when that ends would be killed with it. */
export async function leaveRunning(client: AshClient, sessionId: string, words: string[]): Promise<void> {
  const quiet = 'stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL'
  const script = `from subprocess import *; Popen(${JSON.stringify(words)}, start_new_session=True, ${quiet})`
  const { exitCode, stderr } = await client.sessions.exec(sessionId, { command: `python3 -c '${script}'` })
  if (exitCode !== 0) throw new Error(`${words.join(' ')} was not started: ${stderr}`)
}
