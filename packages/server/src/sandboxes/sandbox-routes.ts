import { LogLine, LogTail, SandboxId, SandboxInfo, SandboxList, SessionId } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { SSEWriter } from '../http/sse-writer.ts'
import { dataOf, type EventLog } from '../sessions/event-log.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { fenceOf, getSession } from '../sessions/session-queries.ts'
import { assertRoomForReader } from '../sessions/stream-log.ts'
import { getSandbox, listSandboxes } from './list-sandboxes.ts'
import { isLogType, tailLines, toLines } from './log-lines.ts'
import { showSandboxes } from './show-sandbox.ts'

const Params = z.object({ id: SandboxId })
const Lines = z.object({ lines: z.array(LogLine) })
const tags = ['sandboxes']

/** The live sandboxes of a tenant, what they use, and what they said. */
export function registerSandboxRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  // Streams must not hold up a shutdown.
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort())

  routes.get(
    '/api/sandboxes',
    {
      schema: {
        tags,
        summary: 'List live sandboxes, the newest first, with what they use now',
        querystring: SandboxList,
        response: { 200: z.object({ sandboxes: z.array(SandboxInfo), nextCursor: z.string().optional() }) },
      },
    },
    async ({ tenantId, query }) => {
      const { rows, nextCursor } = await listSandboxes(deps.db, tenantId, query)
      const sandboxes = await showSandboxes(deps, rows, { countsDisk: false })
      return { sandboxes, ...(nextCursor !== undefined && { nextCursor }) }
    },
  )

  routes.get(
    '/api/sandboxes/:id',
    {
      schema: {
        tags,
        summary: 'Show a live sandbox',
        params: Params,
        response: { 200: z.object({ sandbox: SandboxInfo }) },
      },
    },
    async ({ tenantId, params }) => {
      const row = await getSandbox(deps.db, tenantId, params.id)
      const [sandbox] = await showSandboxes(deps, [row], { countsDisk: true })
      if (!sandbox) throw new Error('a sandbox was lost on the way')
      return { sandbox }
    },
  )

  routes.get(
    '/api/sandboxes/:id/logs',
    {
      schema: {
        tags,
        summary: 'Read what a sandbox said: output, set-up, refused connections, limits, errors',
        params: Params,
        querystring: LogTail,
        response: { 200: Lines },
      },
    },
    async ({ tenantId, params, query }, reply) => {
      const { session_id, created_at } = await getSandbox(deps.db, tenantId, params.id)
      if (session_id === null) return { lines: [] }
      return sendLog(reply, { tenantId, sessionId: session_id, sinceMs: created_at, ...query })
    },
  )

  routes.get(
    '/api/sessions/:id/logs',
    {
      schema: {
        tags,
        summary: 'Read the same of a session, whichever sandboxes it had',
        params: z.object({ id: SessionId }),
        querystring: LogTail,
        response: { 200: Lines },
      },
    },
    async ({ tenantId, params, query }, reply) =>
      sendLog(reply, { tenantId, sessionId: params.id, sinceMs: 0, ...query }),
  )

  async function sendLog(
    reply: FastifyReply,
    range: { tenantId: string; sessionId: string; sinceMs: number; tail: number; follow: boolean },
  ): Promise<z.infer<typeof Lines>> {
    const log = await deps.logs.get(fenceOf(await getSession(deps.db, range.tenantId, range.sessionId)))
    const seq = log.lastSeq
    const lines = await tailLines(deps.db, range, seq)
    if (!range.follow) return { lines }
    assertRoomForReader(log)
    const writer = new SSEWriter(reply)
    await follow(writer, log, { lines, seq, closing: closing.signal })
    return { lines: [] } // The reply has been sent.
  }
}

async function follow(
  writer: SSEWriter,
  log: EventLog,
  { lines, seq, closing }: { lines: LogLine[]; seq: number; closing: AbortSignal },
): Promise<void> {
  try {
    await writer.write(`retry: 1000\n\n${lines.map(toFrame).join('')}`)
    for await (const frames of log.read({ seq, sub: 0 }, AbortSignal.any([writer.signal, closing]))) {
      const fresh = frames.flatMap((frame) =>
        frame.sub === 0 && isLogType(frame.type)
          ? toLines(frame.type, dataOf(frame)).map((text) => ({ seq: frame.seq, type: frame.type, text }))
          : [],
      )
      if (fresh.length > 0) await writer.write(fresh.map(toFrame).join(''))
    }
    await writer.end()
  } catch (error) {
    writer.destroy()
    throw error
  }
}

const toFrame = (line: LogLine) => `event: line\ndata: ${JSON.stringify(line)}\n\n`
