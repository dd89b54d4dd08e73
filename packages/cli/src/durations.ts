import { MAX_RUN_TIMEOUT_MS } from '@ash-ai/sdk'
import { InvalidArgumentError } from 'commander'

const UNITS_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** `500ms`, `30s`, `5m`, `1h`, `2d`; a bare number is seconds. In milliseconds. */
export function toDuration(text: string): number {
  const [, digits, unit = 's'] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text) ?? []
  const ms = Math.ceil(Number(digits) * (UNITS_MS[unit] ?? 0))
  if (ms > 0) return ms
  throw new InvalidArgumentError('Give a time such as 500ms, 30s, 5m or 1h.')
}

/** Of a run. */
export function toRunTimeout(text: string): number {
  const ms = toDuration(text)
  if (ms <= MAX_RUN_TIMEOUT_MS) return ms
  throw new InvalidArgumentError(`Give at most ${MAX_RUN_TIMEOUT_MS / 1000} seconds.`)
}
