import { request as httpRequest } from 'node:http'
import { parseSSE, type SSEFrame } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { liveRssMb } from '../bench/support/process-usage.ts'
import { buildPacedBridge } from './faults/support/paced-bridge.ts'
import type { PacedTurn } from './faults/support/paced-turn.ts'
import { bash, deployTestAgent, readLog, scripted } from './support/conversation.ts'
import { digestFirstTurn, digestTurn } from './support/log-digest.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

describe('clients that do not keep up', () => {
  const LONG_TEXT = 'A slow reader must cost nobody else anything. '.repeat(200_000)
  let server: TestServer
  let sessionId: string
  beforeAll(async () => {
    server = await startTestServer({
      env: { ASH_SHUTDOWN_TIMEOUT_MS: '1000' },
      script: { rules: [{ when: { prompt: 'long answer' }, reply: { text: LONG_TEXT, chunkSize: 50_000 } }] },
    })
    await deployTestAgent(server.client)
    sessionId = (await server.client.sessions.create({ agent: 'zebra' })).id
  })
  afterAll(() => server.close())

  /** The frames of a stream until one of that type. */
  async function readUntil(
    path: string,
    headers: Record<string, string>,
    lastType: string,
  ): Promise<SSEFrame[]> {
    const left = new AbortController()
    const authorization = `Bearer ${server.apiKey}`
    const response = await fetch(`${server.url}${path}`, {
      headers: { ...headers, authorization },
      signal: left.signal,
    })
    const frames: SSEFrame[] = []
    if (!response.body) throw new Error('no stream')
    for await (const frame of parseSSE(response.body)) {
      frames.push(frame)
      if (frame.event === lastType) break
    }
    left.abort()
    return frames
  }

  test('one that reads nothing does not hold up the turn, which ends and is stored', async () => {
    const { hostname, port } = new URL(server.url)
    const stuck = httpRequest({
      hostname,
      port,
      method: 'POST',
      path: `/api/sessions/${sessionId}/messages`,
      headers: { authorization: `Bearer ${server.apiKey}`, 'content-type': 'application/json' },
    })
    // The response is never read: what does not fit into the buffers between stays with the server.
    stuck.on('response', (response) => response.pause()).on('error', () => {})
    stuck.end(JSON.stringify({ content: 'a long answer, please', includePartialMessages: true }))
    const log = await readLog(server.client, sessionId, 1)
    expect(log.at(-1)).toMatchObject({ type: 'done', stopReason: 'end_turn' })
    expect(stuck.socket?.bytesRead).toBeLessThan(LONG_TEXT.length)
    stuck.destroy()
    expect(await server.client.sessions.send(sessionId, scripted({ text: 'next' })).text()).toBe('next')
  })

  test('one that leaves and comes back with Last-Event-ID gets each entry exactly once', async () => {
    const steps = [bash('echo one'), bash('echo two'), bash('echo three'), { text: 'the end' }]
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    const seen: string[] = []
    for await (const event of server.client.sessions.send(id, scripted(...steps))) {
      seen.push(event.id)
      if (seen.length === 4) break
    }
    const rest = await readUntil(`/api/sessions/${id}/stream`, { 'last-event-id': seen.at(-1) ?? '' }, 'done')
    const all = await readUntil(`/api/sessions/${id}/stream?after=0`, {}, 'done')
    const ids = all.map((frame) => frame.id)
    expect(ids).toEqual(ids.map((_, index) => String(index + 1)))
    const firstSeen = ids.indexOf(seen[0])
    expect([...seen, ...rest.map((frame) => frame.id)]).toEqual(ids.slice(firstSeen))
    expect(all.slice(firstSeen + seen.length)).toEqual(rest)
    await server.client.sessions.end(id)
  })
})

describe('a turn of 200 MB beside a reader at 100 KB/s', () => {
  const PIECE_CHARS = 64 * 1024
  const MAX_GROWTH_MB = 32
  let bridge: Awaited<ReturnType<typeof buildPacedBridge>>
  let server: TestServer
  beforeAll(async () => {
    bridge = await buildPacedBridge()
    server = await startTestServer({
      env: { ASH_BRIDGE_ENTRY: bridge.path, NODE_OPTIONS: '--inspect-port=0' },
    })
    await deployTestAgent(server.client)
  })
  afterAll(async () => {
    await server.close()
    await bridge[Symbol.asyncDispose]()
  })

  const newSession = async () => (await server.client.sessions.create({ agent: 'zebra' })).id
  function readTurn(sessionId: string, megabytes: number) {
    const pieces = (megabytes * 1024 * 1024) / PIECE_CHARS
    const turn: PacedTurn = { mark: 'much', pieces, pieceChars: PIECE_CHARS, paceMs: 0 }
    return digestTurn(server, sessionId, JSON.stringify(turn))
  }

  /** Runs the turn; resolves with what the server's memory had grown by when the fast reader was done. */
  async function runBesideSlowReader(): Promise<number> {
    const sessionId = await newSession()
    const release = new AbortController()
    const slow = digestFirstTurn(server, sessionId, { bytesPerSecond: 100_000, release: release.signal })
    const before = await liveRssMb(server)
    const fast = await readTurn(sessionId, 200)
    const grownMb = (await liveRssMb(server)) - before
    release.abort()
    expect(await slow).toEqual(fast)
    expect(fast.entries).toBeGreaterThan(3200)
    await server.client.sessions.end(sessionId)
    return grownMb
  }

  test('costs the server no memory, and the slow reader misses nothing', async () => {
    // What a server takes for its first large turn it keeps, with or without slow readers.
    await readTurn(await newSession(), 200)
    // The allocator takes a step up now and then; what a slow reader costs is there every time.
    const grownMb = [await runBesideSlowReader(), await runBesideSlowReader()]
    expect(Math.min(...grownMb)).toBeLessThan(MAX_GROWTH_MB)
  })
})
