import type { FastifyInstance } from 'fastify'

/** Remembers the routes registered after this call; tells which methods a path would have answered. */
export function trackMethods(app: FastifyInstance): (url: string) => string[] {
  const routes = new Map<string, { pattern: RegExp; methods: Set<string> }>()
  app.addHook('onRoute', ({ url, method }) => {
    const route = routes.get(url) ?? { pattern: toPattern(url), methods: new Set() }
    for (const name of [method].flat()) route.methods.add(name)
    routes.set(url, route)
  })
  return (url) => {
    const path = url.split('?', 1)[0] ?? ''
    const matching = [...routes.values()].filter(({ pattern }) => pattern.test(path))
    return [...new Set(matching.flatMap(({ methods }) => [...methods]))].sort()
  }
}

/** `/api/sessions/:id/files/*` and the like; our routes use nothing else. */
function toPattern(url: string): RegExp {
  const source = url
    .split('/')
    .map((part) =>
      part.startsWith(':') ? '[^/]+' : part === '*' ? '.*' : part.replace(/[^A-Za-z0-9_-]/g, '\\$&'),
    )
    .join('/')
  return new RegExp(`^${source}$`)
}
