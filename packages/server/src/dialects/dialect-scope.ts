import type { FastifyInstance, FastifyRequest } from 'fastify'

/**
 * What the clients of a dialect take for granted: a slash at the end of a path changes nothing, and neither does the
 * content type of a body. Call it before the routes.
 */
export function speakDialect(scope: FastifyInstance): void {
  takeAnyJson(scope)
  scope.addHook('onRoute', (route) => {
    // The API document, and the clients made from it, have one vocabulary.
    route.schema = { ...route.schema, hide: true }
    const { routePath } = route
    const hasTwin = !routePath.endsWith('/') && !routePath.endsWith('*') && route.method !== 'HEAD'
    if (hasTwin) scope.route({ ...route, url: `${routePath}/` })
  })
  scope.addHook('onSend', async (_request, reply) => {
    reply.header('x-process-time', (reply.elapsedTime / 1000).toFixed(6))
  })
}

/** `curl -d` calls everything a form. Whatever comes is read as JSON; nothing at all is no body. */
function takeAnyJson(scope: FastifyInstance): void {
  const parseJson = scope.getDefaultJsonParser('error', 'error')
  const parse = (
    request: FastifyRequest,
    text: string,
    done: (error: Error | null, body?: unknown) => void,
  ) => (text.trim() === '' ? done(null, undefined) : parseJson(request, text, done))
  scope.removeContentTypeParser('application/json')
  for (const type of ['application/json', 'application/x-www-form-urlencoded', '*'])
    scope.addContentTypeParser(type, { parseAs: 'string' }, parse)
}
