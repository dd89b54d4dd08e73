import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  type Stats,
} from 'node:fs'
import { codeOf } from './checkpoint-fault.ts'
import { toBytes } from './entry-path.ts'

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants
const NEVER_FOLLOW_OR_WAIT = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
/** Node does not name it. The same on every architecture Node runs on. */
const O_PATH = 0o10000000
const IS_LINUX = process.platform === 'linux'

/**
 * An open file or folder of a tree that untrusted code writes to. `close` puts back the mode where it had to be
 * changed to open it.
 */
export interface Held {
  fd: number
  stats: Stats
  close(): void
}

export interface HeldFolder extends Held {
  /** What a child's name is appended to. Only Linux reaches children through the descriptor. */
  base: string
}

/**
 * Opens a folder by one name below one that is held, never through a link: no swap of a folder for a link on the way
 * leads out. Elsewhere than on Linux plain paths are used, good enough for a provider that isolates nothing.
 */
export function holdFolder(path: string): HeldFolder {
  const held = hold(path, O_RDONLY | O_DIRECTORY, 0o500)
  return { ...held, base: IS_LINUX ? `/proc/self/fd/${held.fd}` : path }
}

/** A regular file, for reading; undefined where it is something else by now. */
export function holdFile(folder: HeldFolder, name: string): Held | undefined {
  const held = hold(childOf(folder, name), O_RDONLY, 0o400)
  if (held.stats.isFile()) return held
  held.close()
  return undefined
}

export const childOf = (folder: HeldFolder, name: string): string => `${folder.base}/${name}`

/** In the order of their bytes. */
export const namesIn = (folder: HeldFolder): string[] =>
  readdirSync(toBytes(folder.base), { encoding: 'latin1' }).sort(byCharacter)

/** Of the child itself, also where it is a link; undefined where it is gone. */
export const statChild = (folder: HeldFolder, name: string): Stats | undefined =>
  lstatSync(toBytes(childOf(folder, name)), { throwIfNoEntry: false })

export const readLink = (folder: HeldFolder, name: string): string =>
  readlinkSync(toBytes(childOf(folder, name)), { encoding: 'latin1' })

const byCharacter = (left: string, right: string) => (left < right ? -1 : left > right ? 1 : 0)

function hold(path: string, flags: number, needed: number): Held {
  let fd: number
  try {
    fd = openSync(toBytes(path), flags | NEVER_FOLLOW_OR_WAIT)
  } catch (error) {
    if (codeOf(error) !== 'EACCES' || !IS_LINUX) throw error
    return holdAsOwner(path, flags, needed)
  }
  const stats = fstatSync(fd)
  if (isOpenTo(stats, needed)) return { fd, stats, close: () => closeSync(fd) }
  closeSync(fd)
  return holdAsOwner(path, flags, needed)
}

/** A folder that can be read but not searched opens, and still shows nothing of what it holds. */
const isOpenTo = (stats: Stats, needed: number) =>
  !stats.isDirectory() ||
  process.geteuid?.() !== stats.uid ||
  stats.uid === 0 ||
  (stats.mode & needed) === needed

/** What we own, its mode cannot keep from us: through a descriptor, so that it is this one and no other. */
function holdAsOwner(path: string, flags: number, needed: number): Held {
  const anchor = openSync(toBytes(path), O_PATH | NEVER_FOLLOW_OR_WAIT)
  const self = `/proc/self/fd/${anchor}`
  const stats = fstatSync(anchor)
  const mode = stats.mode & 0o7777
  const close = () => {
    try {
      chmodSync(self, mode)
    } finally {
      closeSync(anchor)
    }
  }
  try {
    if (stats.isSymbolicLink()) throw Object.assign(new Error('is a link'), { code: 'ELOOP' })
    chmodSync(self, mode | needed)
    const fd = openSync(self, (flags | NEVER_FOLLOW_OR_WAIT) & ~O_NOFOLLOW)
    return {
      fd,
      stats,
      close: () => {
        closeSync(fd)
        close()
      },
    }
  } catch (error) {
    if (stats.isSymbolicLink()) closeSync(anchor)
    else close()
    throw error
  }
}
