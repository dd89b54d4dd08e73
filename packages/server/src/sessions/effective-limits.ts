import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import { AshError, type ErrorDetail, type Limits } from '@ash-ai/shared'

/** As asked for in a request: any of them, or none. */
type WantedLimits = { [Name in keyof Limits]?: Limits[Name] | undefined }

/** What a session gets: the operator's limits, lowered by the agent's and the session's own. None can be raised. */
export function effectiveLimits(most: Limits, agent: WantedLimits = {}, session: WantedLimits = {}): Limits {
  const wanted = { ...most, ...agent, ...session } as Limits
  const tooMuch = (Object.keys(most) as (keyof Limits)[]).filter((name) => wanted[name] > most[name])
  if (tooMuch.length === 0) return wanted
  const details: ErrorDetail[] = tooMuch.map((name) => ({
    path: `limits.${name}`,
    message: `must be at most ${most[name]}, which this server allows`,
  }))
  const text = details.map(({ path, message }) => `${path}: ${message}`).join('; ')
  throw new AshError('validation_failed', text, { details })
}

/** As stored with a session. One that is older than a limit has that at its default. */
export function storedLimits(text: string): Limits {
  return { ...DEFAULT_LIMITS, ...(JSON.parse(text) as Partial<Limits>) }
}
