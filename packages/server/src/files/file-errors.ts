import { AshError, type ErrorCode } from '@ash-ai/shared'

/** Runs file system calls about one path of a workspace; what they report becomes an error a client can read. */
export async function aboutPath<Result>(path: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    throw toFileError(error, path)
  }
}

const MEANINGS: Partial<Record<string, [ErrorCode, string]>> = {
  ENOENT: ['file_not_found', 'does not exist'],
  // Opening a link as a directory reports ENOTDIR, opening it as a file ELOOP.
  ELOOP: ['path_invalid', 'is a link, and links are not followed'],
  ENOTDIR: ['path_invalid', 'goes through a link or a file where a folder is needed'],
  ENAMETOOLONG: ['path_invalid', 'is too long'],
  EACCES: ['path_invalid', 'may not be accessed'],
  EPERM: ['path_invalid', 'may not be accessed'],
  EINVAL: ['path_invalid', 'cannot be put there'],
  EEXIST: ['file_exists', 'exists already'],
  ENOTEMPTY: ['file_exists', 'is a folder that is not empty'],
  EISDIR: ['not_a_file', 'is a folder'],
  ENXIO: ['not_a_file', 'is not a regular file'],
  ENOSPC: ['disk_full', 'was not written: there is no room left for it'],
  EDQUOT: ['disk_full', 'was not written: there is no room left for it'],
}

function toFileError(error: unknown, path: string): unknown {
  const [code, problem] = MEANINGS[codeOf(error)] ?? []
  return code === undefined ? error : new AshError(code, `"${path}" ${problem}`, { cause: error })
}

export const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : ''

/** What `work` finds, or undefined where nothing is there. */
export async function unlessMissing<Result>(work: Promise<Result>): Promise<Result | undefined> {
  try {
    return await work
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}
