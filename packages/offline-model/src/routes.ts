import type { IncomingMessage, ServerResponse } from 'node:http'
import { type ApiError, sendError, sendJson } from './api-replies.ts'
import { ClientPresence } from './client-presence.ts'
import { estimateTokens } from './estimate-tokens.ts'
import type { Outcome } from './exchange.ts'
import { InvalidRequest, parseMessagesRequest } from './messages-request.ts'
import { playStep } from './play-step.ts'
import { readBody } from './read-body.ts'
import { newId } from './reply-message.ts'
import { describeRequest } from './request-context.ts'
import type { RecordedRequest, RequestLog } from './request-log.ts'
import type { ScriptPlayer } from './script-player.ts'

export type RouteDeps = {
  log: RequestLog
  /** The player at this moment: a script may be exchanged while the server runs. */
  player: () => ScriptPlayer
  apiKey: string | undefined
  maxBodyBytes: number
}

/** Serves one HTTP request to its end. Never rejects. */
export async function serveRequest(
  deps: RouteDeps,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const requestId = newId('req')
  try {
    await route(deps, request, response, requestId)
  } catch (error) {
    if (response.headersSent || response.destroyed) response.destroy()
    else sendError(response, requestId, toApiError(error))
  }
}

type Route = (deps: RouteDeps, call: Call) => Promise<void> | void

type Call = { request: IncomingMessage; response: ServerResponse; requestId: string; body: Buffer }

const ROUTES = new Map<string, Route>([
  ['POST /v1/messages', serveMessages],
  ['POST /v1/messages/count_tokens', guarded(serveCountTokens)],
  ['GET /v1/models', guarded((_deps, { response }) => sendJson(response, 200, MODELS))],
  ['GET /api/hello', (_deps, { response }) => sendJson(response, 200, { message: 'hello' })],
  ['HEAD /api/hello', (_deps, { response }) => sendJson(response, 200, { message: 'hello' })],
])

const MODEL = {
  type: 'model',
  id: 'offline',
  display_name: 'Offline model (scripted)',
  created_at: '2026-01-01T00:00:00Z',
}
const MODELS = { data: [MODEL], has_more: false, first_id: MODEL.id, last_id: MODEL.id }

async function route(deps: RouteDeps, request: IncomingMessage, response: ServerResponse, requestId: string) {
  const name = `${request.method} ${request.url?.split('?', 1)[0]}`
  const body = await readBody(request, deps.maxBodyBytes)
  const found = ROUTES.get(name)
  if (body === undefined) sendError(response, requestId, tooLarge(deps.maxBodyBytes))
  else if (found === undefined) sendError(response, requestId, { status: 404, message: `No ${name} here` })
  else await found(deps, { request, response, requestId, body })
}

async function serveMessages(deps: RouteDeps, call: Call): Promise<void> {
  const { request, response, requestId, body } = call
  const context = describeRequest(parseMessagesRequest(decodeJson(body)), request.headers)
  const record: RecordedRequest = { ...context, id: requestId, receivedAt: Date.now() }
  // Before a step is chosen, so that a test can wait for the request while its script function still thinks.
  deps.log.add(record, body.length)
  try {
    const outcome = isAuthorized(deps, request) ? await reply(deps, call, record) : refuse(call)
    deps.log.complete(record, { outcome, ...(response.headersSent ? { status: response.statusCode } : {}) })
  } catch (error) {
    deps.log.complete(record, { outcome: 'error' })
    throw error
  }
}

async function reply(
  deps: RouteDeps,
  { response, requestId }: Call,
  record: RecordedRequest,
): Promise<Outcome> {
  record.reply = await deps.player().next(record)
  return playStep({
    step: record.reply,
    context: record,
    requestId,
    response,
    client: new ClientPresence(response),
  })
}

function serveCountTokens(_deps: RouteDeps, { response, body }: Call): void {
  const { messages, system, tools } = parseMessagesRequest(decodeJson(body))
  sendJson(response, 200, { input_tokens: estimateTokens([messages, system, tools]) })
}

function guarded(serve: Route): Route {
  return async (deps, call) => {
    if (isAuthorized(deps, call.request)) await serve(deps, call)
    else refuse(call)
  }
}

function refuse({ response, requestId }: Call): Outcome {
  sendError(response, requestId, { status: 401, message: 'invalid x-api-key' })
  return 'error'
}

function tooLarge(maxBytes: number): ApiError {
  return { status: 413, message: `The request is longer than ${maxBytes} bytes` }
}

function isAuthorized({ apiKey }: RouteDeps, { headers }: IncomingMessage): boolean {
  if (apiKey === undefined) return true
  return headers['x-api-key'] === apiKey || headers.authorization === `Bearer ${apiKey}`
}

function decodeJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString())
  } catch {
    throw new InvalidRequest('The body is not JSON')
  }
}

function toApiError(error: unknown): ApiError {
  const message = error instanceof Error ? error.message : String(error)
  return { status: error instanceof InvalidRequest ? 400 : 500, message }
}
