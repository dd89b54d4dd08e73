import { spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'

export const ROOT = resolve(import.meta.dirname, '../../..')
/** Where to look for programs, and nothing else of this environment. */
export const BARE_ENV = { PATH: process.env.PATH ?? '/usr/local/bin:/usr/bin:/bin' }
const TIMEOUT_MS = 60_000

export interface ProcessResult {
  code: number | null
  stdout: string
  stderr: string
}

/** Runs a program to its end in the root of the repository, with no environment but PATH and what is given. */
export async function runProcess(
  command: string,
  args: string[],
  { env = {}, input = '' }: { env?: Record<string, string>; input?: string } = {},
): Promise<ProcessResult> {
  const child = spawn(command, args, { cwd: ROOT, env: { ...BARE_ENV, ...env }, timeout: TIMEOUT_MS })
  const result = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      result[name] += text
    })
  }
  child.stdin.on('error', () => {}).end(input)
  const { promise, resolve: ended, reject } = Promise.withResolvers<number | null>()
  child.once('error', reject).once('close', ended)
  return { code: await promise, ...result }
}

/** A server that is expected not to start: how it ended and what it said. */
export async function runServer(
  env: Record<string, string>,
): Promise<{ code: number | null; output: string }> {
  const script = join(ROOT, 'scripts/server.mjs')
  const { code, stdout, stderr } = await runProcess(process.execPath, [script], { env })
  return { code, output: stdout + stderr }
}

/** A port that nothing listens on. */
export async function freePort(): Promise<number> {
  await using taken = await takePort()
  return taken.port
}

/** A port that something else than Ash listens on. */
export async function takePort(): Promise<AsyncDisposable & { port: number }> {
  const server = createServer((socket) => socket.destroy())
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return {
    port: address.port,
    [Symbol.asyncDispose]: () => new Promise<void>((closed) => void server.close(() => closed())),
  }
}
