import type { EgressDeniedEventData, LimitEventData, SessionStatus } from '@ash-ai/shared'
import type { SessionDeps } from './session-deps.ts'
import type { Fence } from './session-queries.ts'

/** Lifecycle is part of the log: whoever follows it sees why nothing comes any more. */
export async function noteStatus(deps: SessionDeps, fence: Fence, status: SessionStatus): Promise<void> {
  await (await deps.logs.get(fence)).append('status', null, JSON.stringify({ status }))
}

/** The boundary speaks: what it refused becomes part of the session's log. */
export async function noteEvent(
  deps: SessionDeps,
  fence: Fence,
  type: 'limit' | 'egress_denied',
  data: LimitEventData | EgressDeniedEventData,
): Promise<void> {
  const { sessionId } = fence
  deps.log.warn({ sessionId, type, ...data }, 'sandbox met its boundary')
  try {
    const log = await deps.logs.get(fence)
    await log.append(type, deps.live.get(sessionId)?.turn?.id ?? null, JSON.stringify(data))
  } catch (error) {
    deps.log.error({ err: error, sessionId }, 'an event of the boundary could not be stored')
  }
}
