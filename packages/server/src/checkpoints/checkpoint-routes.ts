import {
  AshError,
  Checkpoint,
  CheckpointDiff,
  CheckpointId,
  CheckpointList,
  DiffQuery,
  SessionId,
} from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { listTurnStarts } from '../sessions/event-queries.ts'
import { getOpenSession } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { getSession } from '../sessions/session-queries.ts'
import { deleteCheckpoint, getCheckpoint, listCheckpoints, toCheckpoint } from './checkpoint-queries.ts'
import { getLocalCheckpoint } from './session-files.ts'
import { checkpointFor } from './take-checkpoint.ts'

const Params = z.object({ id: SessionId })
const CheckpointParams = z.object({ id: SessionId, checkpointId: CheckpointId })
const OneCheckpoint = z.object({ checkpoint: Checkpoint })
const tags = ['checkpoints']

export function registerCheckpointRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const { db } = deps

  routes.get(
    '/api/sessions/:id/checkpoints',
    {
      schema: {
        tags,
        summary: 'List the checkpoints of a session, newest first',
        params: Params,
        querystring: CheckpointList,
        response: { 200: z.object({ checkpoints: z.array(Checkpoint), nextCursor: z.string().optional() }) },
      },
    },
    async ({ tenantId, params, query }) => {
      const session = await getSession(db, tenantId, params.id)
      const { rows, nextCursor } = await listCheckpoints(db, tenantId, params.id, query)
      const checkpoints = rows.map((row) => toCheckpoint(row, session))
      return { checkpoints, ...(nextCursor !== undefined && { nextCursor }) }
    },
  )

  routes.post(
    '/api/sessions/:id/checkpoints',
    {
      schema: {
        tags,
        summary: 'Save the files and the conversation as they are now',
        params: Params,
        response: { 201: OneCheckpoint },
      },
    },
    async ({ tenantId, params }, reply) => {
      const row = await checkpointFor(deps, tenantId, params.id, undefined)
      const session = await getSession(db, tenantId, params.id)
      return reply.code(201).send({ checkpoint: toCheckpoint(row, session) })
    },
  )

  routes.get(
    '/api/sessions/:id/checkpoints/diff',
    {
      schema: {
        tags,
        summary: 'Compare two checkpoints: files of the workspace, and the turns between',
        params: Params,
        querystring: DiffQuery,
        response: { 200: z.object({ diff: CheckpointDiff }) },
      },
    },
    async ({ tenantId, params, query }) => {
      await getOpenSession(db, tenantId, params.id)
      const from = await getLocalCheckpoint(deps, tenantId, params.id, query.from)
      const to = await getLocalCheckpoint(deps, tenantId, params.id, query.to)
      const [low, high] = [Math.min(from.seq, to.seq), Math.max(from.seq, to.seq)]
      const turns = await listTurnStarts(db, tenantId, params.id, { after: low, upTo: high })
      const files = await deps.checkpoints.diff(tenantId, from.manifest, to.manifest, query.limit)
      return { diff: { from: from.id, to: to.id, ...files, turns } }
    },
  )

  routes.delete(
    '/api/sessions/:id/checkpoints/:checkpointId',
    {
      schema: {
        tags,
        summary: 'Forget a checkpoint; not the one that the files descend from',
        params: CheckpointParams,
        response: { 200: z.object({ ok: z.literal(true) }) },
      },
    },
    async ({ tenantId, params: { id, checkpointId } }) => {
      await getSession(db, tenantId, id)
      // Not while the session goes back to it.
      await deps.live.exclusive(id, async () => {
        if (await deleteCheckpoint(db, tenantId, id, checkpointId)) return
        await getCheckpoint(db, tenantId, id, checkpointId)
        throw new AshError('session_conflict', 'The files of the session descend from this checkpoint')
      })
      return { ok: true as const }
    },
  )
}
