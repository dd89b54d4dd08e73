import { createHash } from 'node:crypto'
import { type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseSSE } from '@ash-ai/shared'
import type { TestServer } from './test-server.ts'

/** What a reader has of a log, without keeping it: as many entries, and the same digest where they are the same. */
export interface LogDigest {
  entries: number
  sha256: string
}

/** Reads no faster than this, until `release` is aborted. */
export interface Throttle {
  bytesPerSecond: number
  release: AbortSignal
}

/** Sends a message and reads its turn. */
export function digestTurn(server: TestServer, sessionId: string, content: string): Promise<LogDigest> {
  return digest(server, { path: `/api/sessions/${sessionId}/messages`, body: JSON.stringify({ content }) })
}

/** Follows a session's log and reads its first turn. */
export function digestFirstTurn(
  server: TestServer,
  sessionId: string,
  throttle?: Throttle,
): Promise<LogDigest> {
  return digest(server, { path: `/api/sessions/${sessionId}/stream?after=0` }, throttle)
}

async function digest(server: TestServer, target: Target, throttle?: Throttle): Promise<LogDigest> {
  const response = await open(server, target)
  const bytes = throttle ? throttled(response, throttle) : response
  const hash = createHash('sha256')
  let entries = 0
  for await (const { id = '', event = '', data } of parseSSE(bytes)) {
    if (entries === 0 && event !== 'turn') continue
    hash.update(`${id} ${event} ${data}\n`)
    entries++
    if (event === 'done' || event === 'error') break
  }
  response.destroy()
  return { entries, sha256: hash.digest('hex') }
}

interface Target {
  path: string
  /** Sent with POST. */
  body?: string
}

async function open({ url, apiKey }: TestServer, { path, body }: Target): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  request(`${url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    agent: false,
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
    .on('response', resolve)
    .on('error', reject)
    .end(body)
  return promise
}

async function* throttled(
  stream: IncomingMessage,
  { bytesPerSecond, release }: Throttle,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    yield chunk
    const pauseMs = (chunk.length / bytesPerSecond) * 1000
    await sleep(pauseMs, undefined, { signal: release }).catch(() => {}) // Let go.
  }
}
