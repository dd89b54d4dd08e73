import type { FastifyInstance } from 'fastify'
import { createHttpApp, type HttpAppOptions } from '../http/http-app.ts'
import type { DialectDeps } from './dialect-deps.ts'
import { registerSandboxSystem } from './sandbox-system/register-sandbox-system.ts'
import type { ProviderMap } from './sandbox-system/session-routes.ts'
import { registerSandboxV1 } from './sandbox-v1/register-sandbox-v1.ts'

export interface DialectOptions {
  readonly keys: 'on' | 'off'
  readonly providers: ProviderMap
}

/** The listener of those who speak other words than ours; ours are not spoken there. */
export async function buildDialectApp(
  http: HttpAppOptions,
  deps: DialectDeps,
  { keys, providers }: DialectOptions,
): Promise<FastifyInstance> {
  const app = await createHttpApp({ ...http, keys })
  registerSandboxV1(app, deps)
  registerSandboxSystem(app, deps, providers)
  return app
}
