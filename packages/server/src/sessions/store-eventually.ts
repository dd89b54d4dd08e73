import { setTimeout as sleep } from 'node:timers/promises'
import { isAshError } from '@ash-ai/shared'
import type { SessionDeps } from './session-deps.ts'

const STORE_RETRY_MS = 1_000

/**
 * Repeats a write until the database takes it, or the server stops: then the next start stores what is missing.
 * False where it was not stored.
 */
export async function storeEventually(
  { live, log }: SessionDeps,
  write: () => Promise<unknown>,
): Promise<boolean> {
  for (;;) {
    try {
      await write()
      return true
    } catch (error) {
      // An answer of our own, such as that the session is another host's now, does not change.
      if (isAshError(error) || live.isClosed) return false
      log.error({ err: error }, 'the database did not take a write; it is repeated')
    }
    await sleep(STORE_RETRY_MS, undefined, { ref: false })
  }
}
