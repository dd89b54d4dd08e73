import { randomUUID } from 'node:crypto'
import { Socket } from 'node:net'
import { AshError, MAX_JSON_BODY_BYTES } from '@ash-ai/shared'
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify'
import { validatorCompiler } from 'fastify-type-provider-zod'
import { trackMethods } from './allowed-methods.ts'
import { type AuthOptions, addAuth } from './auth.ts'
import { refuseBrokenRequest } from './broken-request.ts'
import { handleError } from './error-handler.ts'
import { addMetrics, type Metrics } from './metrics.ts'
import { addOpenApi } from './openapi.ts'

export interface HttpAppOptions extends AuthOptions {
  log: FastifyBaseLogger
  metrics: Metrics
  version: string
}

/** Longer than any valid id, name or path even when percent-encoded: what is too long is then named, not lost. */
const MAX_PARAM_CHARS = 4096
const MAX_HEADER_BYTES = 16 * 1024
/** A client gets this long to send a request with its whole body. */
const REQUEST_TIMEOUT_MS = 600_000

/** The HTTP side without any feature: keys, errors, limits, documents, metrics. Routes are registered into it. */
export async function createHttpApp(options: HttpAppOptions): Promise<FastifyInstance> {
  const app: FastifyInstance = Fastify({
    loggerInstance: options.log,
    logController: new LogController({ disableRequestLogging: true }),
    // One logger for all: a child for every request would cost more than the line it writes, which names the request.
    childLoggerFactory: (log) => log,
    genReqId: () => randomUUID(),
    bodyLimit: MAX_JSON_BODY_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: { maxHeaderSize: MAX_HEADER_BYTES },
    routerOptions: { maxParamLength: MAX_PARAM_CHARS },
    // While closing, `refuseWhileStopping` answers in our own words.
    return503OnClosing: false,
    frameworkErrors: handleError,
    clientErrorHandler: refuseBrokenRequest,
  })
  // Fastify would take any text for a body; nothing here does.
  app.removeContentTypeParser('text/plain')
  app.setValidatorCompiler(validatorCompiler)
  // Replies are built by our own mappers; parsing each one again would only cost time.
  app.setSerializerCompiler(() => JSON.stringify)
  app.setErrorHandler(handleError)
  const methodsOf = trackMethods(app)
  app.setNotFoundHandler((request, reply) => refuseUnknownRoute(request, reply, methodsOf(request.url)))
  addReplyHeaders(app)
  refuseWhileStopping(app)
  addAuth(app, options)
  logRequests(app, options.log)
  hangUpOnUnreadBodies(app)
  await addOpenApi(app, options.version)
  addMetrics(app, options.metrics)
  return app
}

function refuseUnknownRoute(request: FastifyRequest, reply: FastifyReply, methods: string[]): void {
  const path = request.url.split('?', 1)[0]
  if (methods.length === 0)
    throw new AshError('route_not_found', `${request.method} ${path} does not exist. See /docs.`)
  reply.header('allow', methods.join(', '))
  throw new AshError(
    'method_not_allowed',
    `${path} does not answer ${request.method}, only ${methods.join(', ')}`,
  )
}

function addReplyHeaders(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    reply.headers({ 'x-request-id': request.id, 'x-content-type-options': 'nosniff' })
    done()
  })
}

function refuseWhileStopping(app: FastifyInstance): void {
  let isStopping = false
  app.addHook('preClose', async () => {
    isStopping = true
  })
  app.addHook('onRequest', (_request, reply, done) => {
    if (!isStopping) return done()
    reply.header('connection', 'close')
    done(new AshError('server_stopping', 'The server is shutting down', { retryAfterSeconds: 5 }))
  })
}

function logRequests(app: FastifyInstance, log: FastifyBaseLogger): void {
  // Nothing here can hold a secret, and looking for one would copy every line.
  const plain = log.child({}, { redact: [] })
  app.addHook('onResponse', (request, reply, done) => {
    plain.info(
      {
        requestId: request.id,
        method: request.method,
        route: request.routeOptions.url,
        statusCode: reply.statusCode,
        ms: Math.round(reply.elapsedTime * 10) / 10,
      },
      'request',
    )
    done()
  })
}

/** Time for a client to notice that its upload was refused. */
const LINGER_MS = 500

/**
 * A reply may come before the end of the body, for instance because it is too large. Closing at once could
 * take the reply with it, and waiting for the rest would let a client hold the connection.
 */
function hangUpOnUnreadBodies(app: FastifyInstance): void {
  app.addHook('onRequest', ({ raw }, reply, done) => {
    // Kept here, since a request whose stream is destroyed no longer knows its connection.
    const { socket } = raw
    const hasBody =
      raw.headers['transfer-encoding'] !== undefined || raw.headers['content-length'] !== undefined
    // A request that a test injects has no connection.
    if (!hasBody || !(socket instanceof Socket)) return done()
    reply.raw.once('finish', () => {
      if (!raw.complete) setTimeout(() => raw.complete || socket.destroy(), LINGER_MS)
    })
    done()
  })
}
