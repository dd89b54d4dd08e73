import type { ChildProcess } from 'node:child_process'
import type { Duplex, Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import type { LimitGroup } from '../limits/limit-backend.ts'
import type { SandboxProcess } from '../provider.ts'
import { type Descriptors, streamOf, watchTree } from './watch-tree.ts'

const STDERR_TAIL_CHARS = 8 * 1024
/** How long the last words of a dead child are waited for, where something it left behind holds its stderr. */
const LAST_WORDS_MS = 200

/** Turns a spawned child that runs a bridge into a SandboxProcess: with its stream and the tail of its stderr. */
export async function watchProcess(
  child: ChildProcess,
  { bridgeFd, ...fds }: Descriptors & { bridgeFd: number },
  group: LimitGroup,
): Promise<SandboxProcess> {
  const stderr = keepTail(child.stderr)
  const tree = await watchTree(child, fds, group, stderr.ended)
  const stream = streamOf(child, bridgeFd) as Duplex
  return {
    ...tree,
    stream,
    exited: tree.exited.then((exit) => ({ ...exit, stderr: stderr.text() })),
    async kill() {
      await tree.kill()
      await tree.exited
      stream.destroy()
    },
  }
}

function keepTail(stream: Readable | null): { text: () => string; ended: () => Promise<unknown> } {
  let tail = ''
  stream?.setEncoding('utf8').on('data', (chunk: string) => {
    tail = (tail + chunk).slice(-STDERR_TAIL_CHARS)
  })
  const closed = stream && new Promise((resolve) => stream.once('close', resolve))
  return {
    text: () => tail,
    ended: () => Promise.race([closed, delay(LAST_WORDS_MS, undefined, { ref: false })]),
  }
}
