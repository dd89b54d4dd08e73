import { chmod, mkdir, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { exists, removeSessionDirs, type SessionDirs } from '../../session-dirs.ts'
import type { DiskBackend, DiskState } from './disk-backend.ts'
import { makeImage, mountImage, mountUsedImage, trim, tryUnmount, unmount } from './ext4-image.ts'
import { PolledDisk } from './polled-disk.ts'

/** A disk without a sandbox is unmounted this long after its last use: clean on disk, and no loop device held. */
const IDLE_MS = 60_000
const SWEEP_MS = 30_000
/** Kernels write in pieces of up to 2 MB and refuse one as a whole, so a write can fail with this much left. */
const FULL_BYTES = 2 * 1024 * 1024

interface Mounted {
  point: string
  sandboxes: number
  lastUsedMs: number
}

/**
 * Each session's folders in a file system of their own: an ext4 image of the size allowed, sparse, so that it takes
 * from the host what it holds. The kernel refuses what does not fit, in blocks and in inodes. Nothing inside ever
 * sees the image, only files in it, so the file system that the kernel reads is one that the kernel wrote.
 */
export class LoopDisk implements DiskBackend {
  readonly name = 'loop'
  readonly enforcement = 'hard'
  readonly #mounted = new Map<string, Mounted>()
  /** What is going on with a session's disk; the next waits for it. */
  readonly #busy = new Map<string, Promise<unknown>>()
  readonly #plain = new PolledDisk()
  readonly #sweep: NodeJS.Timeout
  readonly #idleMs: number

  constructor({ idleMs = IDLE_MS, sweepMs = SWEEP_MS } = {}) {
    this.#idleMs = idleMs
    this.#sweep = setInterval(() => void this.#unmountIdle(), sweepMs).unref()
  }

  acquire(dirs: SessionDirs, diskMb: number): Promise<void> {
    return this.#exclusive(dirs, async () => {
      if (await isPlain(dirs)) return
      const isNew = !(await exists(imageOf(dirs)))
      if (isNew) {
        await makeMountPoint(dirs)
        await makeImage(imageOf(dirs), diskMb)
      }
      const mounted = await this.#mount(dirs, { isNew })
      mounted.sandboxes++
    })
  }

  release(dirs: SessionDirs): void {
    this.#plain.release(dirs)
    const mounted = this.#mounted.get(dirs.root)
    if (!mounted) return
    mounted.sandboxes--
    mounted.lastUsedMs = performance.now()
  }

  async ensureMounted(dirs: SessionDirs): Promise<void> {
    const mounted = this.#mounted.get(dirs.root)
    if (mounted) {
      mounted.lastUsedMs = performance.now()
      return
    }
    await this.#exclusive(dirs, async () => {
      if (await exists(imageOf(dirs))) await this.#mount(dirs, { isNew: false })
    })
  }

  async stateOf(dirs: SessionDirs, diskMb: number): Promise<DiskState> {
    if (!this.#mounted.has(dirs.root)) return this.#plain.stateOf(dirs, diskMb)
    const space = await statfs(dirs.disk).catch(() => undefined)
    if (!space) return 'ok' // Removed meanwhile.
    return space.bavail * space.bsize < FULL_BYTES || space.ffree === 0 ? 'full' : 'ok'
  }

  remove(dirs: SessionDirs): Promise<void> {
    return this.#exclusive(dirs, async () => {
      if (this.#mounted.delete(dirs.root)) await unmount(dirs.disk)
      await removeSessionDirs(dirs)
    })
  }

  async close(): Promise<void> {
    clearInterval(this.#sweep)
    const all = [...this.#mounted]
    await Promise.all(
      all.map(([root, { point }]) =>
        this.#exclusive({ root }, async () => {
          if (this.#mounted.delete(root)) await unmount(point)
        }),
      ),
    )
  }

  async #mount(dirs: SessionDirs, { isNew }: { isNew: boolean }): Promise<Mounted> {
    const known = this.#mounted.get(dirs.root)
    if (known) return known
    const mount = isNew ? mountImage : mountUsedImage
    await mount(imageOf(dirs), dirs.disk)
    const mounted = { point: dirs.disk, sandboxes: 0, lastUsedMs: performance.now() }
    this.#mounted.set(dirs.root, mounted)
    return mounted
  }

  async #unmountIdle(): Promise<void> {
    const isIdle = ({ sandboxes, lastUsedMs }: Mounted) =>
      sandboxes === 0 && performance.now() - lastUsedMs >= this.#idleMs
    for (const [root, mounted] of [...this.#mounted].filter(([, each]) => isIdle(each))) {
      await this.#exclusive({ root }, async () => {
        if (this.#mounted.get(root) !== mounted || !isIdle(mounted)) return
        await trim(mounted.point)
        if (!isIdle(mounted)) return
        // From here on whoever wants it waits for its turn.
        this.#mounted.delete(root)
        if (!(await tryUnmount(mounted.point))) this.#mounted.set(root, mounted)
      })
    }
  }

  async #exclusive<Result>(
    { root }: Pick<SessionDirs, 'root'>,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const before = this.#busy.get(root) ?? Promise.resolve()
    const result = before.then(work)
    const settled = result.catch(() => {})
    this.#busy.set(root, settled)
    await settled
    if (this.#busy.get(root) === settled) this.#busy.delete(root)
    return result
  }
}

const imageOf = (dirs: SessionDirs) => join(dirs.root, 'disk.img')

/** Made while this machine could not mount: such a session keeps its folders, and they are polled. */
async function isPlain(dirs: SessionDirs): Promise<boolean> {
  return !(await exists(imageOf(dirs))) && (await exists(dirs.workspace))
}

async function makeMountPoint({ root, disk }: SessionDirs): Promise<void> {
  for (const folder of [root, disk]) {
    await mkdir(folder, { recursive: true, mode: 0o711 })
    await chmod(folder, 0o711) // The umask may have taken the search bit that sandbox users need.
  }
}

/** Whether this process may mount an image in that folder: tried with a small one, of which nothing is left. */
export async function canMountImages(folder: string): Promise<boolean> {
  if (process.getuid?.() !== 0) return false
  const root = join(folder, `.ash-probe-${process.pid}`)
  const [disk, image] = [join(root, 'disk'), join(root, 'disk.img')]
  try {
    await mkdir(disk, { recursive: true })
    await makeImage(image, 2)
    await mountImage(image, disk)
    await unmount(disk)
    return true
  } catch {
    return false
  } finally {
    await removeSessionDirs({ root }).catch(() => {}) // What is left, the next start removes.
  }
}
