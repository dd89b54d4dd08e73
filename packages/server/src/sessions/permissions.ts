import { randomUUID } from 'node:crypto'
import {
  AshError,
  isAshError,
  type PermissionAnswer,
  type PermissionDecision,
  type PermissionRequest,
  type PermissionRequestEvent,
  type PermissionResolution,
  type PermissionSettings,
} from '@ash-ai/shared'
import type { EventLog } from './event-log.ts'
import type { LiveSession } from './live-sessions.ts'
import { assertAgent } from './open-session.ts'
import type { PendingPermission } from './pending-permissions.ts'
import { findPermissionStatus, listUnsettledPermissions } from './permission-queries.ts'
import type { SessionDeps } from './session-deps.ts'
import { type Fence, getSession } from './session-queries.ts'

/** More at once is no conversation with a person any more. */
const MAX_PENDING = 32

type Outcome = Omit<PermissionResolution, 'requestId' | 'turnId'>
type SessionKey = Pick<Fence, 'tenantId' | 'sessionId'>

/** The agent asks: its request becomes part of the log and waits for an answer or for its time to run out. */
export async function askPermission(
  deps: SessionDeps,
  live: LiveSession,
  turnId: string,
  event: PermissionRequestEvent,
  { timeoutMs = deps.permissionTimeoutMs, onTimeout }: PermissionSettings = {},
): Promise<void> {
  const message = refusal(deps, live)
  if (message) return sendDecision(deps, live, event.requestId, { behavior: 'deny', message })
  const request = toRequest(turnId, event, timeoutMs)
  const { requestId } = request
  await appendPermission(live.log, request)
  const expire = () => {
    const message = `Nobody answered within ${timeoutMs / 1000} s`
    const pending = live.permissions.take(requestId)
    const decision = { behavior: 'deny' as const, message, interrupt: onTimeout === 'interrupt' }
    if (pending) settle(deps, live, pending, { status: 'expired', message }, decision).catch(() => {})
  }
  const expiry = setTimeout(expire, timeoutMs)
  live.permissions.add({ request, bridgeRequestId: event.requestId, expiry })
}

function refusal({ maxLogChars }: SessionDeps, { permissions, log }: LiveSession): string | undefined {
  if (permissions.size >= MAX_PENDING) return `${MAX_PENDING} requests are waiting for an answer already`
  return log.totalChars < maxLogChars ? undefined : 'The log of the session is full'
}

/** Of what a bridge sends only the known fields are kept. The id is the first: it is looked for there. */
function toRequest(
  turnId: string,
  { kind, tool, input, toolUseId, reason }: PermissionRequestEvent,
  timeoutMs: number,
): PermissionRequest {
  const now = Date.now()
  return {
    requestId: randomUUID(),
    turnId,
    kind,
    tool,
    input,
    ...(toolUseId !== undefined && { toolUseId }),
    ...(reason !== undefined && { reason }),
    status: 'pending',
    createdAt: new Date(now).toISOString(),
    expiresAt: new Date(now + timeoutMs).toISOString(),
  }
}

/** Answers a request, once: the decision is durable before the agent hears of it. */
export async function answerPermission(
  deps: SessionDeps,
  session: SessionKey,
  requestId: string,
  answer: PermissionAnswer,
): Promise<PermissionResolution> {
  const { tenantId, sessionId } = session
  assertAgent(await getSession(deps.db, tenantId, sessionId))
  const live = deps.live.get(sessionId)
  const request = live?.permissions.find(requestId)
  const decision = request && toDecision(request, answer)
  const pending = live?.permissions.take(requestId)
  if (!live || !decision || !pending) throw await explainMissing(deps, session, requestId)
  return settle(deps, live, pending, toOutcome(decision), decision)
}

function toOutcome(decision: PermissionDecision): Outcome {
  if (decision.behavior === 'deny') return { status: 'denied', message: decision.message }
  const { updatedInput } = decision
  return { status: 'allowed', ...(updatedInput && { updatedInput }) }
}

async function explainMissing(
  { db }: SessionDeps,
  { tenantId, sessionId }: SessionKey,
  requestId: string,
): Promise<AshError> {
  const status = await findPermissionStatus(db, tenantId, sessionId, requestId)
  if (status === undefined)
    return new AshError('permission_not_found', `Session ${sessionId} has no permission request ${requestId}`)
  const state = status === 'pending' ? 'being settled' : status
  return new AshError('permission_settled', `Permission request ${requestId} is already ${state}`)
}

/** A question is answered by what the agent SDK expects: its own input with the answers in it. */
function toDecision({ kind, input }: PermissionRequest, answer: PermissionAnswer): PermissionDecision {
  if (answer.behavior === 'deny') {
    const { message = 'The user did not allow this.', interrupt = false } = answer
    return { behavior: 'deny', message, interrupt }
  }
  const { updatedInput, answers } = answer
  if (kind === 'permission') {
    if (answers) throw invalidAnswers('are for questions; this request asks for a permission')
    return { behavior: 'allow', ...(updatedInput && { updatedInput }) }
  }
  const given = { ...updatedInput, ...(answers && { answers }) }
  if (!('answers' in given)) throw invalidAnswers('are needed: the text of each question, and its answer')
  return { behavior: 'allow', updatedInput: { ...input, ...given } }
}

const invalidAnswers = (message: string) =>
  new AshError('validation_failed', `answers: ${message}`, { details: [{ path: 'answers', message }] })

/** The agent needs no answer any more, for example because it was interrupted. */
export async function withdrawPermission(
  deps: SessionDeps,
  live: LiveSession,
  bridgeRequestId: string,
): Promise<void> {
  const pending = live.permissions.takeOfBridge(bridgeRequestId)
  if (pending) await settle(deps, live, pending, { status: 'withdrawn' })
}

/** Before the end of a turn is told: whoever reads the log to that end knows what became of every request. */
export async function endPermissions(
  deps: SessionDeps,
  live: LiveSession,
  outcome: Outcome = { status: 'withdrawn' },
): Promise<void> {
  // One that cannot be stored has ended the sandbox.
  await Promise.allSettled(live.permissions.takeAll().map((pending) => settle(deps, live, pending, outcome)))
}

/** What a killed server left: nobody can answer it any more. */
export async function expireLostPermissions(deps: SessionDeps, log: EventLog, fence: Fence, turnId: string) {
  const lost = await listUnsettledPermissions(deps.db, fence.tenantId, fence.sessionId, turnId)
  for (const requestId of lost) await appendPermission(log, { requestId, turnId, ...SERVER_STOPPED })
}

export const SERVER_STOPPED: Outcome = { status: 'expired', message: 'The server stopped' }

async function settle(
  deps: SessionDeps,
  live: LiveSession,
  { request: { requestId, turnId }, bridgeRequestId }: PendingPermission,
  outcome: Outcome,
  decision?: PermissionDecision,
): Promise<PermissionResolution> {
  const resolution = { requestId, turnId, ...outcome }
  try {
    await appendPermission(live.log, resolution)
  } catch (error) {
    // Otherwise the agent would wait for an answer that can never be given.
    live.sandbox.bridge.close(new AshError('internal_error', 'The log of the session could not be written'))
    throw error
  }
  if (decision) sendDecision(deps, live, bridgeRequestId, decision)
  return resolution
}

const appendPermission = (log: EventLog, data: PermissionRequest | PermissionResolution) =>
  log.append('permission_request', data.turnId, JSON.stringify(data))

/** Not awaited: what the agent makes of it is told by its turn, and a hostile bridge might never say. */
function sendDecision(
  deps: SessionDeps,
  live: LiveSession,
  requestId: string,
  decision: PermissionDecision,
): void {
  const { bridge } = live.sandbox
  bridge.call({ cmd: 'permission', requestId, decision }).catch((error: unknown) => {
    if (isAshError(error)) return
    deps.log.warn({ err: error, sessionId: live.fence.sessionId }, 'a decision could not be sent')
    bridge.close(new AshError('bridge_protocol_error', 'The sandbox asks but does not take the answers'))
  })
}
