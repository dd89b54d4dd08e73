import { EventList, LogEntry, MessageList, SessionId } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { SSEWriter } from '../http/sse-writer.ts'
import type { Cursor } from './event-log.ts'
import type { Entry, EventPage } from './event-queries.ts'
import type { SessionDeps } from './session-deps.ts'
import { findLineage, hasLogEvents, listLogEvents } from './session-lineage.ts'
import { fenceOf, getSession } from './session-queries.ts'
import { assertRoomForReader, streamLog } from './stream-log.ts'

const Params = z.object({ id: SessionId })
const tags = ['conversation']
/** How long a browser waits before it opens a lost stream again. */
const RETRY_MS = 1_000

/** The log of a session, as pages and live. */
export function registerEventRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  // Streams must not hold up a shutdown.
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort())

  async function sendPage(
    reply: FastifyReply,
    { tenantId, sessionId }: { tenantId: string; sessionId: string },
    name: 'messages' | 'events',
    page: EventPage,
  ): Promise<FastifyReply> {
    const { fork_seq } = await getSession(deps.db, tenantId, sessionId)
    const lineage = await findLineage(deps.db, { tenantId, sessionId, forkSeq: fork_seq ?? 0 }, page.after)
    const entries = await listLogEvents(deps.db, tenantId, lineage, page)
    const last = entries.at(-1)?.seq
    const hasMore =
      last !== undefined && (await hasLogEvents(deps.db, tenantId, lineage, { ...page, after: last }))
    const cursor = hasMore ? `,"nextCursor":"${last}"` : ''
    // The data of each entry is JSON text already, so the reply is put together as text.
    const text = `{"${name}":[${entries.map(entryJson).join(',')}]${cursor}}`
    return reply.type('application/json').send(text as never)
  }

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
    async ({ tenantId, params, query: { limit, after, cursor } }, reply) => {
      const page = { after: cursor ?? after, limit, types: ['turn', 'message'] as const }
      return sendPage(reply, { tenantId, sessionId: params.id }, 'messages', page)
    },
  )

  routes.get(
    '/api/sessions/:id/events',
    {
      schema: {
        tags,
        summary: 'Read the log, oldest first: all of it, or some types, or one turn',
        params: Params,
        querystring: EventList,
        response: { 200: z.object({ events: z.array(LogEntry), nextCursor: z.string().optional() }) },
      },
    },
    async ({ tenantId, params, query: { limit, after, cursor, types, turnId } }, reply) => {
      const page = { after: cursor ?? after, limit, types, turnId }
      return sendPage(reply, { tenantId, sessionId: params.id }, 'events', page)
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
        response: { 200: z.any().describe('Server-sent events, one for each entry of the log') },
      },
    },
    async (request, reply) => {
      const row = await getSession(deps.db, request.tenantId, request.params.id)
      const log = await deps.logs.get(fenceOf(row))
      assertRoomForReader(log)
      const after = cursorOf(request.headers['last-event-id'], request.query.after ?? 0)
      const writer = new SSEWriter(reply)
      // Also sends the headers while there is nothing else to send.
      await writer.write(`retry: ${RETRY_MS}\n\n`)
      await streamLog(writer, { log, after, closing: closing.signal })
    },
  )
}

/** `Last-Event-ID` is `<seq>` or, after a preview, `<seq>.<n>`. */
function cursorOf(lastEventId: string | string[] | undefined, after: number): Cursor {
  const [, seq, sub = '0'] = /^(\d{1,15})(?:\.(\d{1,15}))?$/.exec(String(lastEventId ?? '')) ?? []
  return seq === undefined ? { seq: after, sub: 0 } : { seq: Number(seq), sub: Number(sub) }
}

function entryJson({ seq, type, turnId, data, createdAt }: Entry): string {
  const turn = turnId === null ? '' : `"turnId":"${turnId}",`
  return `{"seq":${seq},"type":"${type}",${turn}"data":${data},"createdAt":"${new Date(createdAt).toISOString()}"}`
}
