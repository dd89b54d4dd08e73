import { mkdir, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { exists, removeSessionDirs, type SessionDirs } from '../../session-dirs.ts'
import type { AcquireOptions, DiskBackend, DiskState } from './disk-backend.ts'
import { makeImage, mountImage, mountUsedImage, trim, tryUnmount, unmount } from './ext4-image.ts'
import { IMAGE_FILE, openFolder } from './image-folder.ts'
import { ImageStock } from './image-stock.ts'
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
  readonly #stock = new ImageStock()
  readonly #sweep: NodeJS.Timeout
  readonly #idleMs: number

  constructor({ idleMs = IDLE_MS, sweepMs = SWEEP_MS } = {}) {
    this.#idleMs = idleMs
    this.#sweep = setInterval(() => void this.#unmountIdle(), sweepMs).unref()
  }

  acquire(dirs: SessionDirs, diskMb: number, { isBrief = false }: AcquireOptions = {}): Promise<void> {
    return this.#exclusive(dirs, async () => {
      const isNew = !(await exists(imageOf(dirs)))
      // Made while this machine could not mount: such a session keeps its folders, and they are polled.
      if (isNew && (await exists(dirs.workspace))) return
      const mounted =
        isNew && isBrief ? await this.#takeOrMake(dirs, diskMb) : await this.#makeOrMount(dirs, diskMb, isNew)
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
    await this.#stock.close()
    const all = [...this.#mounted]
    await Promise.all(
      all.map(([root, { point }]) =>
        this.#exclusive({ root }, async () => {
          if (this.#mounted.delete(root)) await unmount(point)
        }),
      ),
    )
  }

  async #takeOrMake(dirs: SessionDirs, diskMb: number): Promise<Mounted> {
    const sandboxesDir = dirname(dirs.root)
    try {
      if (!(await this.#stock.take(sandboxesDir, diskMb, dirs.root))) {
        return await this.#makeOrMount(dirs, diskMb, true)
      }
      return this.#note(dirs)
    } finally {
      this.#stock.refill(sandboxesDir, diskMb)
    }
  }

  async #makeOrMount(dirs: SessionDirs, diskMb: number, isNew: boolean): Promise<Mounted> {
    if (isNew) {
      for (const folder of [dirs.root, dirs.disk]) await openFolder(folder)
      await makeImage(imageOf(dirs), diskMb)
    }
    return this.#mount(dirs, { isNew })
  }

  async #mount(dirs: SessionDirs, { isNew }: { isNew: boolean }): Promise<Mounted> {
    const known = this.#mounted.get(dirs.root)
    if (known) return known
    const mount = isNew ? mountImage : mountUsedImage
    await mount(imageOf(dirs), dirs.disk)
    return this.#note(dirs)
  }

  #note(dirs: SessionDirs): Mounted {
    const mounted = { point: dirs.disk, sandboxes: 0, lastUsedMs: performance.now() }
    this.#mounted.set(dirs.root, mounted)
    return mounted
  }

  async #unmountIdle(): Promise<void> {
    await this.#stock.dropIdle()
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

const imageOf = (dirs: SessionDirs) => join(dirs.root, IMAGE_FILE)

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
