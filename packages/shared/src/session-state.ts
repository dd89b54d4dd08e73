export const SESSION_STATUSES = ['starting', 'active', 'paused', 'error', 'ended'] as const
export type SessionStatus = (typeof SESSION_STATUSES)[number]

/** How far a sandbox is. A session without one is `cold`; a spare that is ready for a session is `warm`. */
export const SANDBOX_STATES = ['cold', 'warming', 'warm', 'waiting', 'running'] as const
export type SandboxState = (typeof SANDBOX_STATES)[number]

/** Which status may follow which. `ended` is final. */
const NEXT: Record<SessionStatus, readonly SessionStatus[]> = {
  starting: ['active', 'paused', 'error', 'ended'],
  active: ['paused', 'error', 'ended'],
  paused: ['starting', 'active', 'error', 'ended'],
  error: ['starting', 'active', 'paused', 'ended'],
  ended: [],
}

export function canFollow(from: SessionStatus, to: SessionStatus): boolean {
  return NEXT[from].includes(to)
}

/** Every status from which `to` can be reached: the `where` of a compare-and-set. */
export function statusesBefore(to: SessionStatus): SessionStatus[] {
  return SESSION_STATUSES.filter((from) => canFollow(from, to))
}
