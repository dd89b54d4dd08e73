import type { Socket } from 'node:net'
import { AshError, type TerminalExit, type TerminalSize } from '@ash-ai/shared'
import { nodeModule, tty } from '../late-modules.ts'

/** What the native module of `@lydell/node-pty` offers; its own JavaScript has no way to hold output back. */
interface NativePty {
  fork(
    file: string,
    args: string[],
    env: string[],
    cwd: string,
    cols: number,
    rows: number,
    uid: number,
    gid: number,
    isUtf8: boolean,
    helper: string,
    onExit: (code: number, signal: number) => void,
  ): { fd: number; pid: number }
  resize(fd: number, cols: number, rows: number): void
}

interface PtySpec extends TerminalSize {
  program: string
  args: string[]
  cwd: string
  env: Record<string, string>
}

/** A program with a terminal of its own. */
export interface Pty {
  pid: number
  /** The other end of its terminal: what it writes, and what it is told. */
  stream: Socket
  exited: Promise<TerminalExit>
  /** Only while the stream is open. */
  resize(size: TerminalSize): void
}

const SAME_USER = -1

export function openPty(modulePath: string, { program, args, cwd, env, cols, rows }: PtySpec): Pty {
  const native = loadNative(modulePath)
  const { promise: exited, resolve } = Promise.withResolvers<TerminalExit>()
  const onExit = (code: number, signal: number) =>
    resolve(signal === 0 ? { code, signal: null } : { code: null, signal })
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const user = [SAME_USER, SAME_USER] as const
  const { fd, pid } = native.fork(program, args, variables, cwd, cols, rows, ...user, true, '', onExit)
  const stream = new (tty().ReadStream)(fd)
  return { pid, stream, exited, resize: (size) => native.resize(fd, size.cols, size.rows) }
}

function loadNative(modulePath: string): NativePty {
  try {
    return nodeModule().createRequire(import.meta.filename)(modulePath) as NativePty
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n', 1)[0] : String(error)
    throw new AshError('terminals_unavailable', `There are no terminals in this sandbox: ${reason}`)
  }
}
