import { chmod, lstat, rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { type RecordedRequest, RequestLog } from './request-log.ts'
import { serveRequest } from './routes.ts'
import type { Script } from './script.ts'
import { ScriptPlayer } from './script-player.ts'

export type MessagesApiOptions = {
  /** 0, the default, picks a free one. */
  port?: number
  host?: string
  /** Listen on this Unix socket instead of TCP. */
  socketPath?: string
  /** `echo: <prompt>` if absent. */
  script?: Script
  /** Refuse every other key with 401. */
  apiKey?: string
  maxBodyBytes?: number
  /** How many requests to remember, the latest; 0 for none. */
  keepRequests?: number
}

/** A running stand-in for the Messages API. */
export type MessagesApi = {
  /** For ANTHROPIC_BASE_URL. On a Unix socket it is `http://localhost`, next to ANTHROPIC_UNIX_SOCKET. */
  readonly url: string
  readonly socketPath?: string
  /** The latest /v1/messages requests, oldest first. The list is live. */
  readonly requests: readonly RecordedRequest[]
  setScript(script: Script | undefined): void
  /** The first request, remembered or to come, for which the predicate holds; asked on arrival and on completion. */
  waitFor(predicate: (request: RecordedRequest) => boolean, timeoutMs?: number): Promise<RecordedRequest>
  /** Forgets all requests and starts again with the script of the options. */
  reset(): void
  /** Ends every connection, answered or not. */
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

const DEFAULT_MAX_BODY_BYTES = 32 * 1024 * 1024
const DEFAULT_KEEP_REQUESTS = 1000
const DEFAULT_WAIT_MS = 10_000
const MAX_CONNECTIONS = 1024
// Longer than clients pool their connections, so that none writes into one that is just being closed.
const KEEP_ALIVE_MS = 60_000

/** Starts a server; resolves when it listens. */
export async function startMessagesApi(options: MessagesApiOptions = {}): Promise<MessagesApi> {
  const log = new RequestLog(options.keepRequests ?? DEFAULT_KEEP_REQUESTS)
  let player = new ScriptPlayer(options.script)
  const { apiKey, maxBodyBytes = DEFAULT_MAX_BODY_BYTES } = options
  const deps = { log, player: () => player, apiKey, maxBodyBytes }
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, (request, response) => {
    void serveRequest(deps, request, response)
  })
  server.maxConnections = MAX_CONNECTIONS
  const address = await listen(server, options)
  const close = () => closeAll(server, log)
  return {
    ...address,
    requests: log.requests,
    setScript: (script) => {
      player = new ScriptPlayer(script)
    },
    waitFor: (predicate, timeoutMs = DEFAULT_WAIT_MS) => log.waitFor(predicate, timeoutMs),
    reset: () => {
      log.clear()
      player = new ScriptPlayer(options.script)
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

type Address = { url: string; socketPath?: string }

async function listen(server: Server, options: MessagesApiOptions): Promise<Address> {
  const { host = '127.0.0.1', port = 0, socketPath } = options
  if (socketPath === undefined) {
    await listening(server, { host, port })
    return { url: tcpUrl(server, host) }
  }
  await removeStaleSocket(socketPath)
  await listening(server, { path: socketPath })
  // A sandbox connects under another user id; who may reach the socket is up to its folder.
  await chmod(socketPath, 0o666)
  return { url: 'http://localhost', socketPath }
}

function listening(server: Server, where: { host: string; port: number } | { path: string }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(where, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function tcpUrl(server: Server, host: string): string {
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('The server has no TCP address')
  return `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`
}

async function removeStaleSocket(path: string): Promise<void> {
  const found = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (found?.isSocket() === true) await rm(path)
}

async function closeAll(server: Server, log: RequestLog): Promise<void> {
  log.rejectWaiters(new Error('The server has been closed'))
  // Closing an already closed server reports an error, and leaves it as closed as wanted.
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  server.closeAllConnections()
  await closed
}
