import { randomBytes } from 'node:crypto'
import { mkdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { makeEmptyAhead, removeSessionDirs } from '../../session-dirs.ts'
import { makeImage, mountImage, unmount } from './ext4-image.ts'
import { DISK_FOLDER, IMAGE_FILE, openFolder } from './image-folder.ts'

/** As many can be taken at once before somebody has to wait for one to be made. */
const STOCK = 3
/** Of one size nobody has asked for in this time, none is kept. */
const IDLE_MS = 5 * 60_000
const MAX_SIZES = 4

interface Shelf {
  sandboxesDir: string
  sizeMb: number
  lastWantedMs: number
  /** Folders, each with an image and, mounted, the empty file system in it. */
  ready: string[]
}

/**
 * A few empty disks, formatted and mounted ahead of time: making one takes as long as starting an interpreter. Each
 * lies beside the folders of sessions and is moved as a whole to where it is needed, so it is complete at every moment.
 * What a killed server leaves here, the next start unmounts and removes, as it does with folders of no session.
 */
export class ImageStock {
  readonly #shelves = new Map<string, Shelf>()
  #filling: Promise<void> | undefined
  #isClosed = false

  /** Moves a ready one to `root`. False where there is none, or something is at `root` already. */
  async take(sandboxesDir: string, sizeMb: number, root: string): Promise<boolean> {
    const shelf = this.#shelf(sandboxesDir, sizeMb)
    const folder = shelf.ready.shift()
    if (folder === undefined) return false
    try {
      await rename(folder, root)
      return true
    } catch {
      shelf.ready.push(folder)
      return false
    }
  }

  /** More of this size will be wanted. Made behind the back of whoever says so. */
  refill(sandboxesDir: string, sizeMb: number): void {
    this.#shelf(sandboxesDir, sizeMb)
    this.#filling ??= this.#fill().finally(() => {
      this.#filling = undefined
    })
  }

  async dropIdle(): Promise<void> {
    for (const [key, shelf] of this.#shelves) {
      if (performance.now() - shelf.lastWantedMs >= IDLE_MS) await this.#drop(key, shelf)
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#filling
    for (const [key, shelf] of this.#shelves) await this.#drop(key, shelf)
  }

  #shelf(sandboxesDir: string, sizeMb: number): Shelf {
    const key = `${sizeMb} ${sandboxesDir}`
    const shelf = this.#shelves.get(key) ?? { sandboxesDir, sizeMb, lastWantedMs: 0, ready: [] }
    shelf.lastWantedMs = performance.now()
    this.#shelves.set(key, shelf)
    return shelf
  }

  /** One after the other: nobody waits for these, and others want the disk. */
  async #fill(): Promise<void> {
    while (!this.#isClosed) {
      await this.#dropOverflow()
      const shelf = [...this.#shelves.values()].find(({ ready }) => ready.length < STOCK)
      if (shelf === undefined) return
      try {
        shelf.ready.push(await makeReady(shelf))
      } catch {
        return // Whoever needs a disk is told what is wrong.
      }
    }
  }

  async #dropOverflow(): Promise<void> {
    const oldestFirst = [...this.#shelves].sort(([, one], [, other]) => one.lastWantedMs - other.lastWantedMs)
    for (const [key, shelf] of oldestFirst.slice(0, -MAX_SIZES)) await this.#drop(key, shelf)
  }

  async #drop(key: string, shelf: Shelf): Promise<void> {
    this.#shelves.delete(key)
    for (const root of shelf.ready.splice(0)) {
      await unmount(join(root, DISK_FOLDER)).catch(() => {}) // As after a crash: the next start finds it.
      await removeSessionDirs({ root }).catch(() => {})
    }
  }
}

async function makeReady({ sandboxesDir, sizeMb }: Shelf): Promise<string> {
  const root = join(sandboxesDir, `.ready-${randomBytes(6).toString('hex')}`)
  const disk = join(root, DISK_FOLDER)
  try {
    await mkdir(root)
    for (const folder of [root, disk]) await openFolder(folder)
    await makeImage(join(root, IMAGE_FILE), sizeMb)
    await mountImage(join(root, IMAGE_FILE), disk)
    await makeEmptyAhead(disk)
    return root
  } catch (error) {
    await removeSessionDirs({ root }).catch(() => {})
    throw error
  }
}
