import type { BigIntStats } from 'node:fs'

/** Different whenever the file is: whatever is written changes its inode, its size or one of its times. */
export function etagOf({ ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `"${[ino, size, mtimeNs, ctimeNs].map((part) => part.toString(36)).join('-')}"`
}

/** Files of a checkpoint do not change; its other files may have the same. */
export const storedEtagOf = (size: number, modifiedAt: Date): string =>
  `"stored-${size.toString(36)}-${modifiedAt.getTime().toString(36)}"`

export interface WriteConditions {
  /** `If-Match`: the file must be one of these; `*` any. */
  ifMatch?: string | undefined
  /** `If-None-Match`: the file must be none of these; with `*` there must be none. */
  ifNoneMatch?: string | undefined
}

/** Whether a write may go on over what is there, undefined for nothing. */
export function allowsWrite({ ifMatch, ifNoneMatch }: WriteConditions, etag: string | undefined): boolean {
  if (ifMatch !== undefined && !matches(ifMatch, etag)) return false
  return ifNoneMatch === undefined || !matches(ifNoneMatch, etag)
}

/** Whether a header that lists etags, or is `*`, names this one. */
export function matches(header: string, etag: string | undefined): boolean {
  if (etag === undefined) return false
  return header
    .split(',')
    .map((one) => one.trim().replace(/^W\//, ''))
    .some((one) => one === '*' || one === etag)
}

export interface ByteRange {
  start: number
  /** The last byte, included. */
  end: number
}

/**
 * The one range that a `Range` header asks for. Undefined where the whole is to be sent: several ranges, another
 * unit or nonsense may be ignored, says RFC 9110.
 */
export function parseRange(
  header: string | undefined,
  size: number,
): ByteRange | 'unsatisfiable' | undefined {
  const [, from, to] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? []
  if (from === undefined || to === undefined || (from === '' && to === '')) return undefined
  if (from === '') return Number(to) === 0 || size === 0 ? 'unsatisfiable' : lastBytes(Number(to), size)
  const start = Number(from)
  const end = to === '' ? size - 1 : Math.min(Number(to), size - 1)
  if (to !== '' && Number(to) < start) return undefined
  return start >= size ? 'unsatisfiable' : { start, end }
}

const lastBytes = (count: number, size: number) => ({ start: Math.max(0, size - count), end: size - 1 })
