import { isAshError } from '@ash-ai/shared'
import { AshConnectionError, AshReplyError } from './errors.ts'

const FIRST_DELAY_MS = 200
const MAX_DELAY_MS = 4000
/** A server asking for more patience than this gets the caller to decide. */
const MAX_RETRY_AFTER_SECONDS = 30

/** Grows from 0.2 s to 4 s; half of it is chance, so that many clients do not return together. */
export function backoffMs(tries: number): number {
  const fullMs = Math.min(FIRST_DELAY_MS * 2 ** tries, MAX_DELAY_MS)
  return fullMs / 2 + (Math.random() * fullMs) / 2
}

/**
 * How long to wait before repeating a failed request, or undefined where repeating is wrong or useless.
 * `isRepeatable` says that doing it twice is the same as doing it once.
 */
export function retryDelayMs(isRepeatable: boolean, error: unknown, tries: number): number | undefined {
  if (error instanceof AshConnectionError) {
    const isSafe = error.reason === 'refused' || (error.reason === 'lost' && isRepeatable)
    return isSafe ? backoffMs(tries) : undefined
  }
  const retryAfterSeconds = isRepeatable ? busyFor(error) : undefined
  if (retryAfterSeconds === undefined || retryAfterSeconds > MAX_RETRY_AFTER_SECONDS) return undefined
  return Math.max(retryAfterSeconds * 1000, backoffMs(tries))
}

function busyFor(error: unknown): number | undefined {
  if (isAshError(error)) return isBusy(error.statusCode) ? error.retryAfterSeconds : undefined
  return error instanceof AshReplyError && isBusy(error.status) ? error.retryAfterSeconds : undefined
}

const isBusy = (status: number | undefined) => status === 503 || status === 429
