import { IdempotencyKey } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { acceptExecution, type Caller } from '../../executions/accept-execution.ts'
import type { AcceptedExecution } from '../../executions/executions.ts'
import { outcomeOf, type ShownExecution, showExecution } from '../../executions/show-execution.ts'
import { parseInput } from '../../http/validation-error.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { toExecuteRequest, toV1Summary, v1ExecutionJson } from './execution-mapper.ts'
import {
  getLatestExecution,
  getV1Execution,
  listV1Executions,
  type V1ExecutionRow,
} from './execution-queries.ts'
import { OfExecution, SyncQuery, V1Execute, V1ExecutionList } from './execution-schemas.ts'
import { shownId } from './session-mapper.ts'
import { getV1Session } from './session-queries.ts'
import { OfSession } from './session-schemas.ts'
import { V1Refusal } from './v1-errors.ts'

/** An event of 10 MB, and what surrounds it. */
const MAX_BODY_BYTES = 16 * 1024 * 1024

export function addExecutionRoutes(scope: FastifyInstance, deps: DialectDeps): void {
  const { db } = deps.sessions
  const routes = scope.withTypeProvider<ZodTypeProvider>()
  // The seed has these below the session, its later version below the executions.
  for (const path of ['/sessions/:id', '/executions/sessions/:id']) addRunRoutes(scope, deps, path)

  const latest = async (tenantId: string, id: string) =>
    getLatestExecution(db, tenantId, (await getV1Session(db, tenantId, id)).id)

  routes.get('/sessions/:id/status', { schema: { params: OfSession } }, async ({ tenantId, params }) =>
    toStatus(await latest(tenantId, params.id)),
  )
  routes.get('/sessions/:id/result', { schema: { params: OfSession } }, async ({ tenantId, params }, reply) =>
    send(deps, reply, await latest(tenantId, params.id)),
  )
  for (const path of ['/executions/:eid', '/executions/:eid/result'])
    routes.get(path, { schema: { params: OfExecution } }, async ({ tenantId, params }, reply) =>
      send(deps, reply, await getV1Execution(db, tenantId, params.eid)),
    )
  routes.get('/executions/:eid/status', { schema: { params: OfExecution } }, async ({ tenantId, params }) =>
    toStatus(await getV1Execution(db, tenantId, params.eid)),
  )
}

function addRunRoutes(scope: FastifyInstance, deps: DialectDeps, path: string): void {
  const { sessions } = deps
  const routes = scope.withTypeProvider<ZodTypeProvider>()
  const options = { bodyLimit: MAX_BODY_BYTES }

  routes.post(
    `${path}/execute`,
    { ...options, schema: { params: OfSession, body: V1Execute } },
    async (request, reply) => {
      const { id, external_id } = await getV1Session(sessions.db, request.tenantId, request.params.id)
      const run = toExecuteRequest(request.body)
      const { row } = await acceptExecution(sessions, callerOf(request, false), id, run)
      return reply.code(201).send(toStatus({ ...row, external_id }))
    },
  )

  routes.post(
    `${path}/execute-sync`,
    { ...options, schema: { params: OfSession, body: V1Execute, querystring: SyncQuery } },
    async (request, reply) => {
      const { id, external_id } = await getV1Session(sessions.db, request.tenantId, request.params.id)
      const run = toExecuteRequest(request.body)
      const accepted = await acceptExecution(sessions, callerOf(request, true), id, run)
      const { row, output } = await inTime(deps, accepted, request.query.sync_timeout)
      return reply.type('application/json').send(v1ExecutionJson({ ...row, external_id }, output))
    },
  )

  routes.get(
    `${path}/executions`,
    { schema: { params: OfSession, querystring: V1ExecutionList } },
    async ({ tenantId, params, query }) => {
      const session = await getV1Session(sessions.db, tenantId, params.id)
      const { rows, total } = await listV1Executions(sessions.db, tenantId, session.id, query)
      const { limit, offset } = query
      const items = rows.map((row) => toV1Summary(row, shownId(session)))
      return { items, total, limit, offset, has_more: offset + rows.length < total }
    },
  )
}

function callerOf({ tenantId, headers }: FastifyRequest, isWaiting: boolean): Caller {
  const key = headers['idempotency-key']
  if (key === undefined) return { tenantId, isWaiting }
  return { tenantId, isWaiting, idempotencyKey: parseInput(IdempotencyKey, key, 'idempotency-key') }
}

/** The outcome, where it comes in time; the run goes on in any case. */
async function inTime(
  { sessions }: DialectDeps,
  accepted: AcceptedExecution,
  seconds: number,
): Promise<ShownExecution> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(tooLate(accepted.row.id, seconds)), seconds * 1000)
  try {
    return await Promise.race([outcomeOf(sessions, accepted), promise])
  } finally {
    clearTimeout(timer)
  }
}

const tooLate = (id: string, seconds: number) =>
  new V1Refusal(408, {
    error_code: 'Sandbox.ExecTimeout',
    description: 'The execution did not end in time.',
    error_detail: `Execution ${id} goes on after ${seconds} s`,
    solution: `Ask for /api/v1/executions/${id}/result later, or raise sync_timeout.`,
  })

async function send(
  { sessions }: DialectDeps,
  reply: FastifyReply,
  found: V1ExecutionRow,
): Promise<FastifyReply> {
  const { row, output } = await showExecution(sessions, found)
  const json = v1ExecutionJson({ ...row, external_id: found.external_id }, output)
  return reply.type('application/json').send(json)
}

function toStatus(row: V1ExecutionRow) {
  const sessionId = row.external_id ?? row.session_id
  return {
    ...toV1Summary({ ...row, has_result: row.result === null ? 0 : 1 }, sessionId),
    submitted_at: new Date(row.created_at).toISOString(),
  }
}
