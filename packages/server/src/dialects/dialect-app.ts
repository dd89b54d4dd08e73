import { randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { createHttpApp, type HttpAppOptions } from '../http/http-app.ts'
import type { DialectDeps } from './dialect-deps.ts'
import { registerSandboxSystem } from './sandbox-system/register-sandbox-system.ts'
import type { ProviderMap } from './sandbox-system/session-routes.ts'
import { registerSandboxV1 } from './sandbox-v1/register-sandbox-v1.ts'

export interface DialectOptions {
  /** Off: whoever reaches the listener needs no key. Only on loopback. */
  readonly keys: 'on' | 'off'
  readonly providers: ProviderMap
}

/** The listener of those who speak other words than ours; ours are not spoken there. */
export async function buildDialectApp(
  http: HttpAppOptions,
  deps: DialectDeps,
  { keys, providers }: DialectOptions,
): Promise<FastifyInstance> {
  const apiKey = http.apiKey ?? randomBytes(32).toString('hex')
  const app = await createHttpApp({ ...http, apiKey })
  if (keys === 'off') lendKey(app, apiKey)
  registerSandboxV1(app, deps)
  registerSandboxSystem(app, deps, providers)
  return app
}

/**
 * Requests without a key get one on their way in, unless a web page may have sent them: a page somewhere else says where
 * it comes from, and one that has its name point here names itself as the host.
 */
function lendKey(app: FastifyInstance, apiKey: string): void {
  app.server.prependListener('request', ({ headers }: IncomingMessage) => {
    const isPlain = headers.authorization === undefined && isLoopbackHost(headers.host) && !isForeign(headers)
    if (isPlain) headers.authorization = `Bearer ${apiKey}`
  })
}

const isLoopbackHost = (host = '') => /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i.test(host)

const isForeign = ({ origin, host }: IncomingMessage['headers']) =>
  origin !== undefined && origin !== `http://${host}`
