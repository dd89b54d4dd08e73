import {
  AcceptedReply,
  IdempotencyKey,
  InterruptReply,
  MessageSend,
  SendQuery,
  SessionId,
} from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { SSEWriter } from '../http/sse-writer.ts'
import { parseInput } from '../http/validation-error.ts'
import type { Frame } from './event-log.ts'
import { messageValidator } from './message-validator.ts'
import { assertAgent } from './open-session.ts'
import { cancelWaitingTurns } from './queued-turns.ts'
import { type AcceptedTurn, sendMessage } from './send-message.ts'
import type { SessionDeps } from './session-deps.ts'
import { fenceOf, getSession } from './session-queries.ts'
import { assertRoomForReader, streamLog } from './stream-log.ts'
import { endsTurn, turnReply } from './turn-reply.ts'
import { TurnTiming } from './turn-timing.ts'
import { interruptTurn, noTurn } from './turns.ts'

const Params = z.object({ id: SessionId })
const tags = ['conversation']

export function registerMessageRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.post(
    '/api/sessions/:id/messages',
    {
      validatorCompiler: messageValidator,
      schema: {
        tags,
        summary: 'Send a message and stream the turn',
        description:
          'Answers with server-sent events that end with exactly one `done` or one `error`; with `Accept: ' +
          'application/json` it waits and answers with the outcome, and with `?async` at once, with the id of the ' +
          'turn. The turn goes on when the client leaves. A request repeated with the same `Idempotency-Key` ' +
          'is answered with the same turn.',
        params: Params,
        querystring: SendQuery,
        body: MessageSend,
        response: { 200: z.any().describe('The events of the turn, or a TurnReply'), 202: AcceptedReply },
      },
    },
    async (request, reply) => {
      const timing = new TurnTiming(deps, performance.now() - reply.elapsedTime)
      const accepted = await sendMessage(deps, {
        tenantId: request.tenantId,
        sessionId: request.params.id,
        message: request.body,
        timing,
        idempotencyKey: readIdempotencyKey(request),
      })
      const { turnId, isQueued } = accepted
      const isWaitedFor = wantsJson(request) && !request.query.async
      const outcome = isWaitedFor ? await turnReply(accepted, goneSignal(reply)) : undefined
      reply.headers({ 'x-ash-turn-id': turnId, 'server-timing': timing.toHeader() })
      if (outcome) return reply.send(outcome)
      if (request.query.async)
        return reply.code(202).send({ turnId, status: isQueued ? 'queued' : 'running' })
      await streamTurn(reply, accepted, timing)
    },
  )

  routes.post(
    '/api/sessions/:id/interrupt',
    {
      schema: {
        tags,
        summary: 'Stop the turn under way and cancel those that wait',
        params: Params,
        response: { 200: InterruptReply },
      },
    },
    async (request): Promise<InterruptReply> => {
      const row = await getSession(deps.db, request.tenantId, request.params.id)
      assertAgent(row)
      const fence = fenceOf(row)
      const cancelled = await cancelWaitingTurns(deps, fence)
      const live = deps.live.get(fence.sessionId)
      const turnId = live?.turn?.id
      if (turnId === undefined && cancelled.length === 0) throw noTurn()
      if (live) await interruptTurn(live)
      return { ok: true, ...(turnId !== undefined && { turnId }), cancelled }
    },
  )
}

/** Not by a schema of all headers: validation would copy them for every message. */
function readIdempotencyKey({ headers }: FastifyRequest): string | undefined {
  const given = headers['idempotency-key']
  return given === undefined ? undefined : parseInput(IdempotencyKey, given, 'idempotency-key')
}

function wantsJson({ headers: { accept = '' } }: FastifyRequest): boolean {
  return accept.includes('application/json') && !accept.includes('text/event-stream')
}

/** Says that the client is gone before it was answered. */
function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort('the client is gone'))
  if (reply.raw.destroyed) gone.abort('the client is gone')
  return gone.signal
}

/** The turn as server-sent events; of one that waits, from the moment it begins. */
async function streamTurn(reply: FastifyReply, accepted: AcceptedTurn, timing: TurnTiming): Promise<void> {
  const { turnId, log, isQueued } = accepted
  assertRoomForReader(log)
  const writer = new SSEWriter(reply)
  if (isQueued) writer.begin()
  try {
    const seq = await accepted.begun
    await streamLog(writer, {
      log,
      after: { seq: seq - 1, sub: 0 },
      isLast: (frame) => endsTurn(frame, turnId),
      onSent: (frames) => {
        if (frames.some(isMessage)) timing.reach('first_byte')
      },
    })
  } catch (error) {
    // The headers are out: only a broken connection tells the client that this is not the end of the turn.
    writer.destroy()
    throw error
  }
}

const isMessage = ({ type }: Frame) => type === 'message'
