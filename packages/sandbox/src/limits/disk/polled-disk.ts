import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { AshError } from '@ash-ai/shared'
import { exists, removeSessionDirs, type SessionDirs } from '../../session-dirs.ts'
import { type DiskBackend, type DiskState, INODES_PER_MB } from './disk-backend.ts'

const run = promisify(execFile)
const POLL_MS = 3_000
/** Of the time, at most a tenth goes into counting. */
const REST_FACTOR = 9
const COUNT_TIMEOUT_MS = 30_000

interface Count {
  state: DiskState
  isRunning: boolean
  nextMs: number
}

/**
 * Plain folders, counted every few seconds. Between two counts a session can take more than its share; files that
 * are deleted but still open, and folders that their owner closed to itself, are not seen by an unprivileged server.
 */
export class PolledDisk implements DiskBackend {
  readonly name = 'polled'
  readonly enforcement = 'polled'
  readonly #counts = new Map<string, Count>()

  async acquire(dirs: SessionDirs): Promise<void> {
    await assertNoImage(dirs)
    this.#counts.delete(dirs.root)
  }

  release(dirs: SessionDirs): void {
    this.#counts.delete(dirs.root)
  }

  async ensureMounted(dirs: SessionDirs): Promise<void> {
    await assertNoImage(dirs)
  }

  /** As last counted; the next count begins when it is due, and is not waited for. */
  async stateOf(dirs: SessionDirs, diskMb: number): Promise<DiskState> {
    const count = this.#counts.get(dirs.root) ?? { state: 'ok', isRunning: false, nextMs: 0 }
    this.#counts.set(dirs.root, count)
    if (!count.isRunning && performance.now() >= count.nextMs) void recount(count, dirs.disk, diskMb)
    return count.state
  }

  async remove(dirs: SessionDirs): Promise<void> {
    this.#counts.delete(dirs.root)
    await removeSessionDirs(dirs)
  }

  async close(): Promise<void> {}
}

/** Without this check a session would silently begin anew in an empty folder. */
async function assertNoImage({ root }: SessionDirs): Promise<void> {
  if (!(await exists(join(root, 'disk.img')))) return
  throw new AshError(
    'provider_unavailable',
    'The files of this session are in a disk image, which this server cannot mount. Run it as root, with e2fsprogs installed.',
  )
}

async function recount(count: Count, folder: string, diskMb: number): Promise<void> {
  count.isRunning = true
  const startedMs = performance.now()
  const isOver =
    (await du(['-k'], folder)) > diskMb * 1024 || (await du(['--inodes'], folder)) > diskMb * INODES_PER_MB
  count.state = isOver ? 'exceeded' : 'ok'
  const now = performance.now()
  count.nextMs = now + Math.max(POLL_MS, (now - startedMs) * REST_FACTOR)
  count.isRunning = false
}

/** What `du` sums up. A tree that changes meanwhile makes it complain and count on. */
async function du(options: string[], folder: string): Promise<number> {
  const args = ['-s', '-x', ...options, '--', folder]
  const { stdout, killed } = await run('du', args, { timeout: COUNT_TIMEOUT_MS }).then(
    (done) => ({ ...done, killed: false }),
    (error: { stdout?: string; killed?: boolean }) => ({ stdout: error.stdout ?? '', killed: error.killed }),
  )
  // What cannot be counted in that time is more than any limit allows.
  return killed ? Number.POSITIVE_INFINITY : Number(/^\d+/.exec(stdout)?.[0] ?? 0)
}
