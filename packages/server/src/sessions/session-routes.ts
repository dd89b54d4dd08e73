import {
  AshError,
  ExecReply,
  ExecRequest,
  Session,
  SessionCreate,
  SessionId,
  SessionList,
  SessionPatch,
} from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import type { SessionDeps } from './session-deps.ts'
import {
  createSession,
  endSession,
  envAad,
  patchSession,
  pauseSession,
  wakeSession,
} from './session-lifecycle.ts'
import { getSession, listSessions, type SessionRow, toSession } from './session-queries.ts'

const Params = z.object({ id: SessionId })
const OneSession = z.object({ session: Session })
const tags = ['sessions']

export function registerSessionRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const show = (row: SessionRow): Session => {
    const env = deps.secrets.open(row.env_sealed, envAad(row.tenant_id, row.id)) as Record<string, string>
    return toSession(row, env)
  }

  routes.post(
    '/api/sessions',
    {
      schema: {
        tags,
        summary: 'Start a session of an agent',
        body: SessionCreate,
        response: { 201: OneSession },
      },
    },
    async (request, reply) => {
      const row = await createSession(deps, request.tenantId, request.body)
      return reply.code(201).send({ session: show(row) })
    },
  )

  routes.get(
    '/api/sessions',
    {
      schema: {
        tags,
        summary: 'List sessions, newest first',
        querystring: SessionList,
        response: { 200: z.object({ sessions: z.array(Session), nextCursor: z.string().optional() }) },
      },
    },
    async (request) => {
      const { rows, nextCursor } = await listSessions(deps.db, request.tenantId, request.query)
      return { sessions: rows.map(show), ...(nextCursor !== undefined && { nextCursor }) }
    },
  )

  routes.get(
    '/api/sessions/:id',
    { schema: { tags, summary: 'Read a session', params: Params, response: { 200: OneSession } } },
    async (request) => ({ session: show(await getSession(deps.db, request.tenantId, request.params.id)) }),
  )

  routes.patch(
    '/api/sessions/:id',
    {
      schema: {
        tags,
        summary: 'Change what a session may reach or spend, at once',
        params: Params,
        body: SessionPatch,
        response: { 200: OneSession },
      },
    },
    async (request) => ({
      session: show(await patchSession(deps, request.tenantId, request.params.id, request.body)),
    }),
  )

  routes.delete(
    '/api/sessions/:id',
    {
      schema: {
        tags,
        summary: 'End a session and delete its files; its log stays',
        params: Params,
        response: { 200: OneSession },
      },
    },
    async (request) => ({ session: show(await endSession(deps, request.tenantId, request.params.id)) }),
  )

  routes.post(
    '/api/sessions/:id/pause',
    {
      schema: {
        tags,
        summary: 'Stop the sandbox; files and conversation stay',
        params: Params,
        response: { 200: OneSession },
      },
    },
    async (request) => ({ session: show(await pauseSession(deps, request.tenantId, request.params.id)) }),
  )

  routes.post(
    '/api/sessions/:id/resume',
    {
      schema: {
        tags,
        summary: 'Start the sandbox of a paused session',
        params: Params,
        response: { 200: OneSession },
      },
    },
    async (request) => {
      const { tenantId, params } = request
      const { status } = await getSession(deps.db, tenantId, params.id)
      if (status === 'ended')
        throw new AshError('session_gone', `Session ${params.id} has ended and cannot be resumed`)
      const live = await wakeSession(deps, tenantId, params.id)
      if (!live.turn) await live.sandbox.bridge.call({ cmd: 'resume', options: live.options })
      return { session: show(await getSession(deps.db, tenantId, params.id)) }
    },
  )

  routes.post(
    '/api/sessions/:id/exec',
    {
      schema: {
        tags,
        summary: 'Run a shell command in the sandbox',
        params: Params,
        body: ExecRequest,
        response: { 200: ExecReply },
      },
    },
    async (request): Promise<ExecReply> => {
      const live = await wakeSession(deps, request.tenantId, request.params.id)
      const { command, timeout } = request.body
      const result = await live.sandbox.bridge.call({ cmd: 'exec', command, timeoutMs: timeout })
      const reply = ExecReply.safeParse(result)
      if (!reply.success)
        throw new AshError('bridge_protocol_error', 'The sandbox answered with something else than a result')
      return reply.data
    },
  )
}
