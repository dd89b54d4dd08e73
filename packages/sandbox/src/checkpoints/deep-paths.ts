import { closeSync, constants, openSync } from 'node:fs'
import { toBytes } from './entry-path.ts'

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants

/** A path of the manifest may be as long as a system call takes, and the folder it is put into comes on top. */
const MAX_STEP_BYTES = 2000

interface Anchor {
  /** Path of the folder, with a slash at its end unless it is the root. */
  prefix: string
  fd: number
}

/** Paths below a folder of ours, of any depth. Cheapest in the order of a manifest; few descriptors are open at once. */
export class DeepPaths {
  readonly #anchors: Anchor[]
  readonly #plainRoot: string | undefined

  constructor(root: string) {
    this.#plainRoot = process.platform === 'linux' ? undefined : Buffer.from(root).toString('latin1')
    this.#anchors = [{ prefix: '', fd: openSync(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW) }]
  }

  /** What to give to a system call. Good until the next call of this. */
  at(path: string): string | Buffer {
    if (this.#plainRoot !== undefined) return toBytes(`${this.#plainRoot}/${path}`)
    let anchor = this.#nearest(path)
    while (path.length - anchor.prefix.length > MAX_STEP_BYTES) {
      const end = path.lastIndexOf('/', anchor.prefix.length + MAX_STEP_BYTES)
      const fd = openSync(below(anchor, path.slice(0, end)), O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
      anchor = { prefix: path.slice(0, end + 1), fd }
      this.#anchors.push(anchor)
    }
    return below(anchor, path)
  }

  close(): void {
    for (const { fd } of this.#anchors.splice(0)) closeSync(fd)
  }

  /** Lets go of those that lead elsewhere. The root leads everywhere. */
  #nearest(path: string): Anchor {
    for (;;) {
      const anchor = this.#anchors.at(-1)
      if (anchor === undefined) throw new Error('The folder is closed')
      if (path.startsWith(anchor.prefix)) return anchor
      this.#anchors.pop()
      closeSync(anchor.fd)
    }
  }
}

const below = ({ prefix, fd }: Anchor, path: string) =>
  toBytes(`/proc/self/fd/${fd}/${path.slice(prefix.length)}`)
