import type { SandboxPool } from '@ash-ai/sandbox'
import type { LiveSession, LiveSessions } from '../live-sessions.ts'

/** A pool without sandboxes, for what only tells it of states or asks for counts. */
export const emptyPool = () =>
  ({
    live: 0,
    max: 0,
    counts: () => ({ warming: 0, warm: 0, waiting: 0, running: 0 }),
    setState: () => {},
    stopAll: async () => {},
  }) as unknown as SandboxPool

/** A session whose sandbox is whatever the test gives, awake in `sessions`. */
export function wakeWith(sessions: LiveSessions, sessionId: string, live: object): Promise<LiveSession> {
  // The object itself: the test may change it later.
  const session = Object.assign(live, {
    uses: 0,
    isPaused: false,
    isLeaving: false,
    guests: new Set(),
    savesTurns: false,
    ...live,
  })
  return sessions.wake(
    sessionId,
    async () => session as unknown as LiveSession,
    async () => {},
  )
}
