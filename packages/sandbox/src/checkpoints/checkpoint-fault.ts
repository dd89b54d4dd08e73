import type { ErrorCode } from '@ash-ai/shared'

/**
 * What goes wrong inside a thread. Only the type of the codes comes from the shared package: a thread starts in half
 * the time without it.
 */
export class CheckpointFault extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

export const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : ''

/** Gone, or swapped for something else while we looked; what is no link any more is an invalid argument. */
export const isGone = (error: unknown) =>
  ['ENOENT', 'ENOTDIR', 'ELOOP', 'ENXIO'].includes(codeOf(error)) ||
  (codeOf(error) === 'EINVAL' && error instanceof Error && 'syscall' in error && error.syscall === 'readlink')

/** Runs file system calls about one path; what they report becomes a fault that names it. */
export function aboutFile<Result>(path: string, work: () => Result): Result {
  try {
    return work()
  } catch (error) {
    throw toFault(error, `"${displayPath(path)}"`)
  }
}

/** `what` is the subject of the message. */
export function toFault(error: unknown, what: string): CheckpointFault {
  if (error instanceof CheckpointFault) return error
  if (['ENOSPC', 'EDQUOT'].includes(codeOf(error))) {
    return new CheckpointFault('disk_full', `${what}: there is no room left for it`, { cause: error })
  }
  return new CheckpointFault('checkpoint_failed', `${what}: ${reasonOf(error)}`, { cause: error })
}

/** Of an error of the system only what happened: the rest names a path of this host. */
function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  return codeOf(error) === '' ? message : (message.split(',')[0] ?? '')
}

/** A path as people read it: bytes are kept as Latin-1 inside, so that any name survives. */
export const displayPath = (path: string): string => Buffer.from(path, 'latin1').toString() || '.'
