import {
  SessionId,
  TERMINAL_CLOSE,
  Terminal,
  TerminalConnect,
  TerminalCreate,
  TerminalId,
  TerminalToken,
} from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { asGuest } from '../sessions/live-sessions.ts'
import { getOpenSession } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { getSession } from '../sessions/session-queries.ts'
import { useSession } from '../sessions/session-wake.ts'
import { terminalNotFound, terminalsOf } from './session-terminals.ts'
import { openToken, signToken } from './terminal-tokens.ts'
import { Upgrades } from './upgrades.ts'
import { Viewer } from './viewer.ts'

const Params = z.object({ id: SessionId })
const TerminalParams = z.object({ id: SessionId, terminalId: TerminalId })
const OneTerminal = z.object({ terminal: Terminal })
const tags = ['live']

/** Programs with a terminal in the sandbox of a session, seen and typed into over WebSockets. */
export function registerTerminalRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const upgrades = new Upgrades(app, (path) => /^\/api\/sessions\/[^/]+\/terminal$/.test(path))
  const tokenKey = deps.secrets.deriveKey('terminal tokens')

  routes.get(
    '/api/sessions/:id/terminals',
    {
      schema: {
        tags,
        summary: 'List the open terminals of a session',
        params: Params,
        response: { 200: z.object({ terminals: z.array(Terminal) }) },
      },
    },
    async ({ tenantId, params }) => {
      await getSession(deps.db, tenantId, params.id)
      const live = deps.live.get(params.id)
      return {
        terminals: live
          ? terminalsOf(live)
              .list()
              .map((terminal) => terminal.describe())
          : [],
      }
    },
  )

  routes.post(
    '/api/sessions/:id/terminals',
    {
      schema: {
        tags,
        summary: 'Open a terminal before anybody looks at it',
        params: Params,
        body: TerminalCreate,
        response: { 201: OneTerminal },
      },
    },
    async ({ tenantId, params, body }, reply) => {
      const terminal = await useSession(deps, tenantId, params.id, (live) => terminalsOf(live).open(body))
      return reply.code(201).send({ terminal: terminal.describe() })
    },
  )

  routes.delete(
    '/api/sessions/:id/terminals/:terminalId',
    {
      schema: {
        tags,
        summary: 'Close a terminal and end everything that was started in it',
        params: TerminalParams,
        response: { 200: z.object({ ok: z.literal(true) }) },
      },
    },
    async ({ tenantId, params: { id, terminalId } }) => {
      await getSession(deps.db, tenantId, id)
      // A session that sleeps without a sandbox has none, and is not woken to say so.
      if (!deps.live.get(id)) throw terminalNotFound(id, terminalId)
      await useSession(deps, tenantId, id, async (live) => terminalsOf(live).get(terminalId).close())
      return { ok: true as const }
    },
  )

  routes.post(
    '/api/sessions/:id/terminal/tokens',
    {
      schema: {
        tags,
        summary: 'Make a token with which a browser can connect, for a minute',
        params: Params,
        response: { 200: TerminalToken },
      },
    },
    async ({ tenantId, params }) => {
      await getOpenSession(deps.db, tenantId, params.id)
      return signToken(tokenKey, tenantId, params.id)
    },
  )

  routes.get(
    '/api/sessions/:id/terminal',
    {
      schema: {
        tags,
        summary: 'Connect to a terminal (WebSocket): bytes in binary frames, JSON in text frames',
        params: Params,
        querystring: TerminalConnect,
      },
      config: { tenantOf: (request) => tenantOfToken(tokenKey, request) },
    },
    async (request, reply) => {
      upgrades.assertAsked(request)
      await connect(deps, upgrades, request, reply)
    },
  )
}

/** Looked at before the request is checked, like a key. */
function tenantOfToken(key: Buffer, { params, query }: FastifyRequest): string | undefined {
  const [{ id }, { token }] = [params as { id: string }, query as { token?: unknown }]
  return typeof token === 'string' ? openToken(key, token, id) : undefined
}

type Connect = FastifyRequest<{
  Params: z.infer<typeof Params>
  Querystring: z.infer<typeof TerminalConnect>
}>

/** As long as somebody looks at it, the session is at work. */
async function connect(
  deps: SessionDeps,
  upgrades: Upgrades,
  request: Connect,
  reply: FastifyReply,
): Promise<void> {
  const { tenantId, params, query } = request
  const { id, cols, rows } = query
  await useSession(deps, tenantId, params.id, async (live) => {
    const terminals = terminalsOf(live)
    const terminal = id === undefined ? await terminals.open(sizeOf(query)) : terminals.get(id)
    terminal.assertRoom()
    const socket = await upgrades.accept(request, reply)
    if (!socket) return
    const viewer = new Viewer(socket)
    const about = { sessionId: params.id, terminalId: terminal.id }
    deps.log.info(about, 'a viewer has come to a terminal')
    const size = { ...(cols !== undefined && { cols }), ...(rows !== undefined && { rows }) }
    // The terminal itself stays, and is there again after a pause.
    const sendAway = () => viewer.close(TERMINAL_CLOSE.sessionPaused, 'The session is being paused or ended')
    await asGuest(live, sendAway, () => terminal.show(viewer, size))
    deps.log.info(about, 'a viewer has left a terminal')
  })
}

const sizeOf = ({ cols, rows }: z.infer<typeof TerminalConnect>) => TerminalCreate.parse({ cols, rows })
