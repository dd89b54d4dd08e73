import { LogEntry, MessageList, MessageSend, SessionId } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { SSEWriter } from '../http/sse-writer.ts'
import type { Cursor, EventLog, Frame } from './event-log.ts'
import { type Entry, listEvents } from './event-queries.ts'
import type { SessionDeps } from './session-deps.ts'
import { wakeSession } from './session-lifecycle.ts'
import { fenceOf, getSession } from './session-queries.ts'
import { interruptTurn, startTurn } from './turns.ts'

const Params = z.object({ id: SessionId })
const tags = ['conversation']
const streamReply = { 200: z.any().describe('Server-sent events: turn, message, status, log, error, done') }

export function registerMessageRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  // Streams must not hold up a shutdown.
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort())

  routes.post(
    '/api/sessions/:id/messages',
    {
      schema: {
        tags,
        summary: 'Send a message and stream the turn',
        description:
          'The stream ends with exactly one `done` or one `error`. The turn goes on when the client leaves.',
        params: Params,
        body: MessageSend,
        response: streamReply,
      },
    },
    async (request, reply) => {
      const live = await wakeSession(deps, request.tenantId, request.params.id)
      const { turnId, seq } = await startTurn(deps, live, request.body)
      await streamLog(reply, live.log, { seq: seq - 1, sub: 0 }, (frame) => endsTurn(frame, turnId))
    },
  )

  routes.get(
    '/api/sessions/:id/messages',
    {
      schema: {
        tags,
        summary: 'Read the conversation: user messages and SDK messages, oldest first',
        params: Params,
        querystring: MessageList,
        response: { 200: z.object({ messages: z.array(LogEntry), nextCursor: z.string().optional() }) },
      },
    },
    async (request, reply) => {
      const { limit, after, cursor } = request.query
      await getSession(deps.db, request.tenantId, request.params.id)
      const page = { after: cursor ?? after, limit: limit + 1, types: ['turn', 'message'] as const }
      const entries = await listEvents(deps.db, request.tenantId, request.params.id, page)
      const text = messagesReply(entries.slice(0, limit), entries.length > limit)
      // Text already; the type is what it parses to.
      return reply.type('application/json').send(text as never)
    },
  )

  routes.get(
    '/api/sessions/:id/stream',
    {
      schema: {
        tags,
        summary: 'Follow the log: entries after `Last-Event-ID` or `after`, then live ones',
        params: Params,
        querystring: z.object({ after: z.coerce.number().int().min(0).optional() }),
        response: streamReply,
      },
    },
    async (request, reply) => {
      const { id } = request.params
      const row = await getSession(deps.db, request.tenantId, id)
      const log = await deps.logs.get(fenceOf(row))
      const after = cursorOf(request.headers['last-event-id'], request.query.after ?? 0)
      await streamLog(reply, log, after, () => false, closing.signal)
    },
  )

  routes.post(
    '/api/sessions/:id/interrupt',
    {
      schema: {
        tags,
        summary: 'Stop the turn under way',
        params: Params,
        response: { 200: z.object({ ok: z.literal(true) }) },
      },
    },
    async (request) => {
      await getSession(deps.db, request.tenantId, request.params.id)
      await interruptTurn(deps.live.get(request.params.id))
      return { ok: true as const }
    },
  )
}

/** Copies frames to the client until one of them is the last, or the client is gone. */
async function streamLog(
  reply: FastifyReply,
  log: EventLog,
  after: Cursor,
  isLast: (frame: Frame) => boolean,
  closing?: AbortSignal,
): Promise<void> {
  const writer = new SSEWriter(reply)
  const signal = closing ? AbortSignal.any([writer.signal, closing]) : writer.signal
  if (log.lastSeq <= after.seq) writer.begin()
  for await (const frames of log.read(after, signal)) {
    const last = frames.findIndex(isLast)
    const text = (last < 0 ? frames : frames.slice(0, last + 1)).map((frame) => frame.text).join('')
    if (last >= 0) return writer.end(text)
    await writer.write(text)
  }
  writer.end()
}

const endsTurn = (frame: Frame, turnId: string) =>
  frame.sub === 0 && frame.turnId === turnId && (frame.type === 'done' || frame.type === 'error')

/** `Last-Event-ID` is `<seq>` or, after a preview, `<seq>.<n>`. */
function cursorOf(lastEventId: string | string[] | undefined, after: number): Cursor {
  const [, seq, sub = '0'] = /^(\d{1,15})(?:\.(\d{1,15}))?$/.exec(String(lastEventId ?? '')) ?? []
  return seq === undefined ? { seq: after, sub: 0 } : { seq: Number(seq), sub: Number(sub) }
}

/** The data of each entry is JSON text already, so the reply is put together as text. */
function messagesReply(entries: Entry[], hasMore: boolean): string {
  const items = entries.map(({ seq, type, turnId, data, createdAt }) => {
    const turn = turnId === null ? '' : `"turnId":"${turnId}",`
    return `{"seq":${seq},"type":"${type}",${turn}"data":${data},"createdAt":"${new Date(createdAt).toISOString()}"}`
  })
  const cursor = hasMore ? `,"nextCursor":"${entries.at(-1)?.seq}"` : ''
  return `{"messages":[${items.join(',')}]${cursor}}`
}
