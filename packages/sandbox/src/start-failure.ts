import { AshError } from '@ash-ai/shared'
import type { ResourceLimits } from './limits/resource-limits.ts'

export const startFailure = (reason: string) =>
  new AshError('sandbox_start_failed', `The sandbox did not start: ${reason}`)

/** What the operating system refuses, such as a missing agent folder or a full disk, is a failure to start. */
export function asStartFailure(error: unknown, { limits }: { limits: ResourceLimits }): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException
  if (code === undefined || syscall === undefined) return error
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new AshError(
      'disk_full',
      `The sandbox did not start: there is no room left on its disk of ${limits.diskMb} MB, or on the server's`,
      { cause: error },
    )
  }
  // Without the path: the message reaches clients, the cause the log.
  return new AshError('sandbox_start_failed', `The sandbox did not start: ${code} in ${syscall}`, {
    cause: error,
  })
}

/** What the tools say names paths of the host: that is for the log. */
export function asDiskFailure(error: unknown): AshError {
  if (error instanceof AshError) return error
  const text = 'The sandbox did not start: its disk could not be made or mounted'
  return new AshError('sandbox_start_failed', text, { cause: error })
}
