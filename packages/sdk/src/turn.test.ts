import type { ServerResponse } from 'node:http'
import { ERRORS, isAshError } from '@ash-ai/shared'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { AshClient, type AshClientOptions } from './client.ts'
import { AshReplyError } from './errors.ts'
import type { SessionEvent } from './events.ts'
import {
  doneFrame,
  frame,
  openSSE,
  sendJson,
  startServer,
  type TestServer,
  textFrame,
  turnFrame,
} from './testing/http-server.ts'

let server: TestServer | undefined
afterEach(async () => {
  vi.unstubAllGlobals()
  await server?.close()
})

async function serve(
  answer: Parameters<typeof startServer>[0],
  options: AshClientOptions = {},
): Promise<AshClient> {
  server = await startServer(answer)
  return new AshClient({ baseUrl: server.url, ...options })
}

const ids = async (events: AsyncIterable<SessionEvent>) => {
  const seen: string[] = []
  for await (const event of events) seen.push(`${event.type} ${event.id}`)
  return seen
}
const cut = (response: ServerResponse) => setTimeout(() => response.destroy(), 20)

describe('a turn', () => {
  test('is the typed events up to its end', async () => {
    const result = { type: 'result', result: 'Final', total_cost_usd: 1 }
    const client = await serve((_, response) => {
      openSSE(response).write(`: hello\n\n${turnFrame('1')}${textFrame('2', 'Draft')}`)
      response.write(frame('3', 'status', { status: 'active' }) + frame('4', 'of_tomorrow', { a: 1 }))
      response.write(frame('5', 'message', result) + doneFrame('6'))
    })
    const turn = client.sessions.send('s', 'hi', { model: 'm' })
    expect(await ids(turn)).toEqual(['turn 1', 'message 2', 'status 3', 'unknown 4', 'message 5', 'done 6'])
    expect(turn.id).toBe('t1')
    expect(await turn.result()).toEqual({
      turnId: 't1',
      stopReason: 'end_turn',
      usage: { output_tokens: 3 },
      text: 'Final',
      message: result,
    })
    expect(JSON.parse(server?.requests[0]?.body ?? '')).toEqual({ content: 'hi', model: 'm' })
  })

  test('has as text the last words of the agent when there is no result message', async () => {
    const client = await serve((_, response) =>
      openSSE(response).end(turnFrame('1') + textFrame('2', 'One') + textFrame('3', 'Two') + doneFrame('4')),
    )
    expect(await client.sessions.send('s', 'hi').text()).toBe('Two')
  })

  test('arrives whole when every byte comes alone, inside characters too', async () => {
    const text = 'naïve → 🙂 \u2028 end'
    const bytes = Buffer.from(turnFrame('1') + textFrame('2', text) + doneFrame('3'))
    const client = await serve(async (_, response) => {
      openSSE(response)
      for (const byte of bytes) await new Promise((resolve) => response.write(Buffer.of(byte), resolve))
      response.end()
    })
    expect(await client.sessions.send('s', 'hi').text()).toBe(text)
  })

  test('that failed yields its error, ends, and throws from result and text', async () => {
    const error = { turnId: 't1', code: 'agent_crashed', error: 'gone', retryable: true }
    const client = await serve((_, response) =>
      openSSE(response).write(turnFrame('1') + frame('2', 'error', error)),
    )
    const turn = client.sessions.send('s', 'hi')
    expect(await ids(turn)).toEqual(['turn 1', 'error 2'])
    await expect(turn.text()).rejects.toSatisfy((thrown) => isAshError(thrown, 'agent_crashed'))
  })

  test('goes on after an error that is not its own', async () => {
    const other = { code: 'internal_error', error: 'elsewhere', retryable: true }
    const client = await serve((_, response) =>
      openSSE(response).end(turnFrame('1') + frame('2', 'error', other) + doneFrame('3')),
    )
    expect(await ids(client.sessions.send('s', 'hi'))).toEqual(['turn 1', 'error 2', 'done 3'])
  })

  test('that was refused throws what the server said', async () => {
    const reply = { error: 'busy', code: 'turn_in_progress', statusCode: 409, requestId: 'r' }
    const client = await serve((_, response) => sendJson(response, 409, reply))
    const turn = client.sessions.send('s', 'hi')
    await expect(turn.result()).rejects.toMatchObject({ code: 'turn_in_progress', requestId: 'r' })
  })

  test('answered by something else than an event stream is refused', async () => {
    const client = await serve((_, response) => sendJson(response, 200, {}))
    await expect(client.sessions.send('s', 'hi').text()).rejects.toBeInstanceOf(AshReplyError)
  })
})

describe('leaving a turn', () => {
  test('by break closes the connection', async () => {
    let isClosed = false
    const client = await serve((_, response) => {
      response.on('close', () => {
        isClosed = true
      })
      openSSE(response).write(turnFrame('1') + textFrame('2', 'a'))
    })
    const turn = client.sessions.send('s', 'hi')
    for await (const _ of turn) break
    await vi.waitFor(() => expect(isClosed).toBe(true))
    await expect(turn.result()).rejects.toThrow('left before it ended')
    expect(server?.requests).toHaveLength(1)
  })

  test('by abort in the middle throws the reason and does not reconnect', async () => {
    const client = await serve((_, response) => openSSE(response).write(turnFrame('1')))
    const abort = new AbortController()
    const turn = client.sessions.send('s', 'hi', { signal: abort.signal })
    setTimeout(() => abort.abort(), 50)
    await expect(ids(turn)).rejects.toMatchObject({ name: 'AbortError' })
    expect(server?.requests).toHaveLength(1)
  })
})

describe('a broken stream', () => {
  test('is continued after the last entry, each entry once, previews too', async () => {
    const preview = (id: string) => frame(id, 'message', { type: 'stream_event' })
    const client = await serve((_, response, index) => {
      openSSE(response)
      if (index === 0) {
        response.write(turnFrame('1') + textFrame('2', 'a') + preview('2.1') + preview('2.2'))
        response.write('id: 3\nevent: message\ndata: {"type":"assis')
        return cut(response)
      }
      if (index === 1) return response.end() // A clean close before the turn's end is a break as well.
      response.write(preview('2.1') + preview('2.2') + preview('2.3') + textFrame('3', 'b') + doneFrame('4'))
    })
    const turn = client.sessions.send('s', 'hi')
    const seen = await ids(turn)
    expect(seen).toEqual([
      'turn 1',
      'message 2',
      'message 2.1',
      'message 2.2',
      'message 2.3',
      'message 3',
      'done 4',
    ])
    const again = server?.requests.slice(1) ?? []
    expect(again.map(({ method, url, headers }) => [method, url, headers['last-event-id']])).toEqual([
      ['GET', '/api/sessions/s/stream', '2'],
      ['GET', '/api/sessions/s/stream', '2'],
    ])
  })

  test('that is only silent is continued too', async () => {
    const client = await serve(
      (_, response, index) => openSSE(response).write(index === 0 ? turnFrame('1') : doneFrame('2')),
      { idleTimeoutMs: 60 },
    )
    expect(await ids(client.sessions.send('s', 'hi'))).toEqual(['turn 1', 'done 2'])
  })

  test('is kept open by heartbeats', async () => {
    const client = await serve(
      (_, response) => {
        openSSE(response).write(turnFrame('1'))
        const beat = setInterval(() => response.write(':\n\n'), 20)
        setTimeout(() => {
          clearInterval(beat)
          response.end(doneFrame('2'))
        }, 200)
      },
      { idleTimeoutMs: 120 },
    )
    expect(await ids(client.sessions.send('s', 'hi'))).toEqual(['turn 1', 'done 2'])
    expect(server?.requests).toHaveLength(1)
  })

  test('before the message was acknowledged brings it again, with the same key', async () => {
    const client = await serve((_, response, index) => {
      if (index > 0) return openSSE(response).end(turnFrame('1') + doneFrame('2'))
      openSSE(response).write(': wait\n\n')
      cut(response)
    })
    expect(await ids(client.sessions.send('s', 'hi'))).toEqual(['turn 1', 'done 2'])
    const [first, second] = server?.requests ?? []
    expect(second).toMatchObject({ method: 'POST', url: first?.url, body: first?.body })
    expect(second?.headers['idempotency-key']).toMatch(/^[0-9a-f-]{36}$/)
    expect(second?.headers['idempotency-key']).toBe(first?.headers['idempotency-key'])
  })

  test('never shares a key with another message, unless the caller gives one', async () => {
    const client = await serve((_, response) => openSSE(response).end(turnFrame('1') + doneFrame('2')))
    await client.sessions.send('s', 'hi').text()
    await client.sessions.send('s', 'hi').text()
    await client.sessions.send('s', 'hi', { idempotencyKey: 'mine' }).text()
    const keys = server?.requests.map(({ headers }) => headers['idempotency-key'])
    expect(new Set(keys).size).toBe(3)
    expect(keys?.[2]).toBe('mine')
    expect(JSON.parse(server?.requests[2]?.body ?? '')).toEqual({ content: 'hi' })
  })

  test('survives a restarting server but not a missing session', async () => {
    const reply = (code: string, statusCode: number) => ({ error: 'x', code, statusCode, requestId: 'r' })
    const client = await serve((_, response, index) => {
      if (index === 0) return openSSE(response).end(turnFrame('1'))
      if (index === 1) return sendJson(response, 503, reply('server_stopping', 503))
      sendJson(response, 404, reply('session_not_found', 404))
    })
    const turn = client.sessions.send('s', 'hi')
    await expect(turn.text()).rejects.toSatisfy((thrown) => isAshError(thrown, 'session_not_found'))
    expect(server?.requests).toHaveLength(3)
  })

  test.each(['provider_unavailable', 'bridge_unresponsive'] as const)(
    'does not hide that the server refuses the message with %s',
    async (code) => {
      const statusCode = ERRORS[code].status
      const client = await serve((_, response) =>
        sendJson(response, statusCode, { error: 'x', code, statusCode, requestId: 'r' }),
      )
      await expect(client.sessions.send('s', 'hi').text()).rejects.toMatchObject({ code })
      expect(server?.requests).toHaveLength(1)
    },
  )

  test('is not continued for ever', async () => {
    const realSetTimeout = globalThis.setTimeout
    const quicker = (ms: number) => (ms <= 4000 ? ms / 100 : ms)
    vi.stubGlobal('setTimeout', (run: () => void, ms = 0, ...rest: []) =>
      realSetTimeout(run, quicker(ms), ...rest),
    )
    const client = await serve((_, response) => openSSE(response).end(turnFrame('1')))
    await expect(client.sessions.send('s', 'hi').text()).rejects.toMatchObject({ reason: 'lost' })
    expect(server?.requests).toHaveLength(9)
  })

  test('does not take the next turn for its own', async () => {
    const next = frame('2', 'turn', { turnId: 't2', content: 'other' })
    const client = await serve((_, response, index) =>
      openSSE(response).end(index === 0 ? turnFrame('1') : next),
    )
    await expect(client.sessions.send('s', 'hi').text()).rejects.toBeInstanceOf(AshReplyError)
  })
})

test('following a session begins where asked and ends with the session', async () => {
  const client = await serve((_, response) => {
    openSSE(response).write(textFrame('5', 'old') + textFrame('6', 'new'))
    response.write(frame('7', 'status', { status: 'ended' }))
  })
  expect(await ids(client.sessions.follow('s', { after: 5 }))).toEqual(['message 6', 'status 7'])
  expect(server?.requests[0]?.headers['last-event-id']).toBe('5')
})
