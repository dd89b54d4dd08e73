import {
  AshError,
  ExecReply,
  ExecRequest,
  ForkRequest,
  ResumePath,
  RollbackRequest,
  Session,
  SessionCreate,
  SessionId,
  SessionList,
  SessionPatch,
  toNewSession,
} from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { forkSession } from '../checkpoints/fork-session.ts'
import { rollbackSession } from '../checkpoints/replace-files.ts'
import { assertPersistent } from './open-session.ts'
import { createSession } from './session-create.ts'
import type { SessionDeps } from './session-deps.ts'
import { endSession, patchSession } from './session-lifecycle.ts'
import { pauseSession } from './session-pause.ts'
import { getSession, listSessions, type SessionRow } from './session-queries.ts'
import { resumeSession, useSession } from './session-wake.ts'
import { showSession } from './show-session.ts'

const Params = z.object({ id: SessionId })
const OneSession = z.object({ session: Session })
const tags = ['sessions']

export function registerSessionRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const show = (row: SessionRow) => showSession(deps, row)

  routes.post(
    '/api/sessions',
    {
      schema: {
        tags,
        summary: 'Start a session of an agent, or one that runs code',
        description: 'Answers 200 where a session of the template is open already for the `agentId`.',
        body: SessionCreate,
        response: { 200: OneSession, 201: OneSession },
      },
    },
    async (request, reply) => {
      const { row, isNew } = await createSession(deps, request.tenantId, toNewSession(request.body))
      return reply.code(isNew ? 201 : 200).send({ session: show(row) })
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

  const pauses = {
    pause: 'Save the files and freeze the sandbox; a turn under way has 30 s to end',
    stop: 'Pause, and end the sandbox; files and conversation stay',
  }
  for (const [name, summary] of Object.entries(pauses))
    routes.post(
      `/api/sessions/:id/${name}`,
      { schema: { tags, summary, params: Params, response: { 200: OneSession } } },
      async ({ tenantId, params }) => {
        await assertPersistent(deps, tenantId, params.id)
        return { session: show(await pauseSession(deps, tenantId, params.id, { stops: name === 'stop' })) }
      },
    )

  routes.post(
    '/api/sessions/:id/resume',
    {
      schema: {
        tags,
        summary: 'Make a session active; says what that took',
        params: Params,
        response: { 200: OneSession.extend({ resumed: ResumePath }) },
      },
    },
    async ({ tenantId, params }) => {
      await assertPersistent(deps, tenantId, params.id)
      const { row, resumed } = await resumeSession(deps, tenantId, params.id)
      return { session: show(row), resumed }
    },
  )

  routes.post(
    '/api/sessions/:id/fork',
    {
      schema: {
        tags,
        summary: 'A new session, paused, that begins as this one was at a checkpoint',
        params: Params,
        body: ForkRequest.nullish(),
        response: { 201: OneSession },
      },
    },
    async ({ tenantId, params, body }, reply) => {
      await assertPersistent(deps, tenantId, params.id)
      const fork = await forkSession(deps, tenantId, params.id, body?.checkpointId)
      return reply.code(201).send({ session: show(fork) })
    },
  )

  routes.post(
    '/api/sessions/:id/rollback',
    {
      schema: {
        tags,
        summary: 'Go back to an earlier checkpoint; the log keeps everything',
        params: Params,
        body: RollbackRequest,
        response: { 200: OneSession },
      },
    },
    async ({ tenantId, params, body }) => {
      await assertPersistent(deps, tenantId, params.id)
      return { session: show(await rollbackSession(deps, tenantId, params.id, body.checkpointId)) }
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
      const { command, timeout: timeoutMs } = request.body
      await assertPersistent(deps, request.tenantId, request.params.id)
      const result = await useSession(deps, request.tenantId, request.params.id, (live) =>
        live.sandbox.bridge.call({ cmd: 'exec', command, timeoutMs }),
      )
      const reply = ExecReply.safeParse(result)
      if (!reply.success)
        throw new AshError('bridge_protocol_error', 'The sandbox answered with something else than a result')
      return reply.data
    },
  )
}
