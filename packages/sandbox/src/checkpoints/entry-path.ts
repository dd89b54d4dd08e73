/** Longer ones cannot be named in a system call, and no sandbox can have made them by one. */
export const MAX_PATH_BYTES = 4096
const MAX_NAME_BYTES = 255

/** Each folder before its content, names in the order of their bytes: `/` counts as less than any byte of a name. */
export function comparePaths(left: string, right: string): number {
  const length = Math.min(left.length, right.length)
  for (let at = 0; at < length; at++) {
    const [a, b] = [left.charCodeAt(at), right.charCodeAt(at)]
    if (a !== b) return a === SLASH ? -1 : b === SLASH ? 1 : a - b
  }
  return left.length - right.length
}
const SLASH = 0x2f

/** Relative, Latin-1, and leading only downwards. */
export function isEntryPath(path: unknown): path is string {
  if (typeof path !== 'string' || path.length > MAX_PATH_BYTES || HAS_FORBIDDEN.test(path)) return false
  return path.split('/').every(isEntryName)
}

/** NUL, and what is no single byte. */
const HAS_FORBIDDEN = /\0|[^\0-\xff]/

const isEntryName = (name: string) =>
  name !== '' && name !== '.' && name !== '..' && name.length <= MAX_NAME_BYTES

export function isLinkTarget(target: unknown): target is string {
  return (
    typeof target === 'string' &&
    target !== '' &&
    target.length <= MAX_PATH_BYTES &&
    !HAS_FORBIDDEN.test(target)
  )
}

export const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')))

export const joinPath = (folder: string, name: string): string => (folder === '' ? name : `${folder}/${name}`)

/** For system calls: the bytes that the Latin-1 characters stand for. Plain ASCII needs no copy. */
export const toBytes = (path: string): string | Buffer =>
  /[^\0-\x7f]/.test(path) ? Buffer.from(path, 'latin1') : path
