import {
  AshError,
  ExecuteOnce,
  ExecuteRequest,
  Execution,
  ExecutionList,
  ExecutionSummary,
  IdempotencyKey,
  isFinished,
  SessionId,
} from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { parseInput } from '../http/validation-error.ts'
import { fenceOf, getSession } from '../sessions/session-queries.ts'
import { acceptExecution, type Caller } from './accept-execution.ts'
import { registerArtifactRoutes } from './artifact-routes.ts'
import { cancelJob } from './end-execution.ts'
import { acceptSingle } from './execute-once.ts'
import { type ExecutionRow, getExecution, listExecutions } from './execution-queries.ts'
import { executionJson, resultJson, toSummary } from './execution-reply.ts'
import type { AcceptedExecution, ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { findFirstEntry } from './output-queries.ts'
import { outcomeOf, showExecution } from './show-execution.ts'
import { streamExecution } from './stream-execution.ts'

/** Code of 1 MB, an event of 10 MB, and what surrounds them. */
const MAX_BODY_BYTES = 16 * 1024 * 1024

const Params = z.object({ id: SessionId })
const ExecutionParams = z.object({ id: SessionId, executionId: z.uuid({ error: 'must be a UUID' }) })
const OneExecution = z.object({ execution: Execution })
const tags = ['code']
const description =
  'Waits for the outcome, which is 200 whatever the code did: `status` says. With `stream` or `Accept: ' +
  'text/event-stream` it answers with the `execution` and `output` entries as they come and a last `result`; with ' +
  '`async` at once. The run goes on when the client leaves. A request repeated with the same `Idempotency-Key` is ' +
  'answered with the same execution.'
const response = {
  200: OneExecution.describe('The execution, or its events'),
  202: OneExecution.describe('It waits or runs'),
}

export function registerExecutionRoutes(app: FastifyInstance, deps: ExecutionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  // Streams must not hold up a shutdown.
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort())
  const answer = (...call: [FastifyRequest, FastifyReply, AcceptedExecution]) =>
    sendAnswer(deps, closing.signal, ...call)

  routes.post(
    '/api/execute',
    {
      bodyLimit: MAX_BODY_BYTES,
      schema: {
        tags,
        summary: 'Run code once, in a sandbox of its own',
        description,
        body: ExecuteOnce,
        response,
      },
    },
    async (request, reply) => {
      const caller = callerOf(request, request.body)
      await answer(request, reply, await acceptSingle(deps, caller, request.body))
      return reply
    },
  )

  routes.post(
    '/api/sessions/:id/execute',
    {
      bodyLimit: MAX_BODY_BYTES,
      schema: {
        tags,
        summary: 'Run code in a session',
        description,
        params: Params,
        body: ExecuteRequest,
        response,
      },
    },
    async (request, reply) => {
      const caller = { ...callerOf(request, request.body), isReader: wantsStream(request) }
      const accepted = await acceptExecution(deps, caller, request.params.id, request.body)
      await answer(request, reply, accepted)
      return reply
    },
  )

  routes.get(
    '/api/sessions/:id/executions',
    {
      schema: {
        tags,
        summary: 'List the executions of a session, newest first, without output and results',
        params: Params,
        querystring: ExecutionList,
        response: {
          200: z.object({ executions: z.array(ExecutionSummary), nextCursor: z.string().optional() }),
        },
      },
    },
    async ({ tenantId, params, query }) => {
      await getSession(deps.db, tenantId, params.id)
      const { rows, nextCursor } = await listExecutions(deps.db, tenantId, params.id, query)
      return { executions: rows.map(toSummary), ...(nextCursor !== undefined && { nextCursor }) }
    },
  )

  routes.get(
    '/api/sessions/:id/executions/:executionId',
    {
      schema: {
        tags,
        summary: 'Read an execution: all of it, or what there is so far',
        params: ExecutionParams,
        response: { 200: OneExecution },
      },
    },
    async ({ tenantId, params }, reply) =>
      sendExecution(deps, reply, await getExecution(deps.db, tenantId, params.id, params.executionId)),
  )

  routes.get(
    '/api/sessions/:id/executions/:executionId/result',
    {
      schema: {
        tags,
        summary: 'Read the result of an execution, by itself; null where there is none',
        params: ExecutionParams,
        response: { 200: z.unknown().describe('Whatever the code returned') },
      },
    },
    async ({ tenantId, params }, reply) => {
      const row = await getExecution(deps.db, tenantId, params.id, params.executionId)
      if (!isFinished(row.status))
        throw new AshError('execution_unfinished', `Execution ${row.id} is ${row.status}`)
      return sendJson(reply, resultJson(row))
    },
  )

  routes.delete(
    '/api/sessions/:id/executions/:executionId',
    {
      schema: {
        tags,
        summary: 'Cancel an execution; a kernel keeps its variables',
        params: ExecutionParams,
        response: { 200: OneExecution },
      },
    },
    async ({ tenantId, params }, reply) => {
      const row = await getExecution(deps.db, tenantId, params.id, params.executionId)
      const job = deps.runs.find(row.id)
      if (!job || isFinished(row.status))
        throw new AshError('execution_finished', `Execution ${row.id} is ${row.status} already`)
      return sendExecution(deps, reply, await cancelJob(deps, job, 'The execution was cancelled'))
    },
  )

  registerArtifactRoutes(app, deps)
}

function callerOf(request: FastifyRequest, { async: isAsync }: { async?: boolean | undefined }): Caller {
  const key = request.headers['idempotency-key']
  return {
    tenantId: request.tenantId,
    isWaiting: !isAsync,
    ...(key !== undefined && { idempotencyKey: parseInput(IdempotencyKey, key, 'idempotency-key') }),
  }
}

interface WayOfReply {
  stream?: boolean | undefined
  async?: boolean | undefined
}

async function sendAnswer(
  deps: ExecutionDeps,
  closing: AbortSignal,
  request: FastifyRequest,
  reply: FastifyReply,
  accepted: AcceptedExecution,
): Promise<void> {
  const { row } = accepted
  const { async: isAsync } = request.body as WayOfReply
  reply.headers({ 'x-ash-execution-id': row.id, 'x-ash-session-id': row.session_id })
  if (isAsync) await sendExecution(deps, reply.code(202), row)
  else if (wantsStream(request)) await streamAnswer(deps, closing, reply, accepted)
  else {
    const { row: ended, output } = await outcomeOf(deps, accepted)
    sendJson(reply, oneExecution(executionJson(ended, output)))
  }
}

function wantsStream({ headers: { accept = '' }, body }: FastifyRequest): boolean {
  const { stream = accept.includes('text/event-stream'), async: isAsync } = body as WayOfReply
  return stream && !isAsync
}

async function streamAnswer(
  deps: ExecutionDeps,
  closing: AbortSignal,
  reply: FastifyReply,
  accepted: AcceptedExecution,
): Promise<void> {
  const { row, job } = accepted
  // While nothing is sent yet the client can be told that there is no room.
  if (job?.isRefusable) await job.begun
  if (job?.isRefused) await job.ended
  const log =
    job?.log ?? (await deps.logs.get(fenceOf(await getSession(deps.db, row.tenant_id, row.session_id))))
  const outcome = () => outcomeOf(deps, accepted)
  const stream = { executionId: row.id, log, outcome }
  if (job) {
    const until = AbortSignal.any([closing, failureOf(job)])
    return streamExecution(reply, { ...stream, after: job.seqBefore, closing: until })
  }
  const upTo = log.lastSeq
  const after = ((await findFirstEntry(deps.db, row)) ?? upTo + 1) - 1
  await streamExecution(reply, { ...stream, after, upTo, closing })
}

/** Of a job that is given up no last entry comes. */
function failureOf(job: Job): AbortSignal {
  const failure = new AbortController()
  job.ended.catch(() => failure.abort())
  return failure.signal
}

async function sendExecution(
  deps: ExecutionDeps,
  reply: FastifyReply,
  found: ExecutionRow,
): Promise<FastifyReply> {
  const { row, output } = await showExecution(deps, found)
  return sendJson(reply, oneExecution(executionJson(row, output)))
}

const oneExecution = (json: string) => `{"execution":${json}}`

const sendJson = (reply: FastifyReply, json: string) => reply.type('application/json').send(json)
