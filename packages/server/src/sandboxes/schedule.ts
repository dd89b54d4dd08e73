import type { SessionMode } from '@ash-ai/shared'

interface Wanted {
  mode: SessionMode
  /** Whom a persistent session is for. */
  agentId?: string | undefined
  /** The session that is open for them, if there is one. */
  openSession?: { id: string } | undefined
  /** Sandboxes that are ready and like the one wanted. */
  spares: number
}

export type Placement = { path: 'reuse'; sessionId: string } | { path: 'warm' } | { path: 'cold' }

/**
 * Where work goes: to the session that is there for it, to a spare, else to a new sandbox. With more than one host, each
 * of these answers also names the runner that has the session, the spare, or the most room.
 */
export function schedule({ mode, agentId, openSession, spares }: Wanted): Placement {
  if (mode === 'persistent' && agentId !== undefined && openSession)
    return { path: 'reuse', sessionId: openSession.id }
  return { path: spares > 0 ? 'warm' : 'cold' }
}
