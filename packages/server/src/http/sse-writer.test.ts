import { getEventListeners, once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { STUCK_CLIENT_TIMEOUT_MS } from '@ash-ai/shared'
import Fastify, { type FastifyInstance } from 'fastify'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SSEWriter } from './sse-writer.ts'

let app: FastifyInstance
let client: Socket | undefined
/** What the route does with its writer, and when it came to its end. */
let serve: (writer: SSEWriter, raw: ServerResponse) => Promise<void>
let prepare: () => Promise<unknown>
let served: PromiseWithResolvers<void>

beforeEach(async () => {
  prepare = async () => {}
  served = Promise.withResolvers()
  app = Fastify()
  app.get('/', async (_request, reply) => {
    await prepare()
    await serve(new SSEWriter(reply), reply.raw).then(served.resolve, served.reject)
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
})
afterEach(async () => {
  vi.useRealTimers()
  client?.destroy()
  app.server.closeAllConnections()
  await app.close()
})

const port = () => (app.server.address() as { port: number }).port

async function ask(): Promise<void> {
  client = connect(port(), '127.0.0.1')
  await once(client, 'connect')
  client.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
}

/** More than the two sockets hold. */
const LARGE = 'x'.repeat(32 * 1024 * 1024)

test('text arrives as it was written, wherever it is cut', async () => {
  const text = `${'x'.repeat(64 * 1024 - 1)}${'😀é'.repeat(200_000)}`
  serve = async (writer) => {
    await writer.write(`data: ${text}\n\n`)
    await writer.end(`data: x${text}\n\n`)
  }
  const reply = await (await fetch(`http://127.0.0.1:${port()}/`)).text()
  expect(reply === `data: ${text}\n\ndata: x${text}\n\n`).toBe(true)
})

test('held text comes before what follows it, and by itself if nothing follows', async () => {
  const { promise: isRead, resolve: read } = Promise.withResolvers<void>()
  serve = async (writer) => {
    writer.hold('data: a\n\n')
    await writer.write('data: b\n\n')
    writer.hold('data: c\n\n')
    await isRead
    writer.hold('data: d\n\n')
    await writer.end('data: e\n\n')
  }
  const response = await fetch(`http://127.0.0.1:${port()}/`)
  let text = ''
  for await (const chunk of response.body ?? []) {
    text += Buffer.from(chunk).toString()
    if (text.includes('data: c')) read()
  }
  expect(text).toBe('abcde'.replace(/./g, 'data: $&\n\n'))
})

test('a client that left before the stream began is not waited for', async () => {
  const asked = Promise.withResolvers<void>()
  prepare = async () => {
    asked.resolve()
    await once(app.server, 'client gone')
  }
  app.server.on('connection', (socket) => socket.on('close', () => app.server.emit('client gone')))
  serve = async (writer) => {
    expect(writer.signal.aborted).toBe(true)
    await writer.write('x')
    await writer.end('y')
  }
  await ask()
  await asked.promise
  client?.destroy()
  await served.promise
})

test('a client that leaves while it is waited for ends the wait, and nothing stays behind', async () => {
  const writing = Promise.withResolvers<SSEWriter>()
  serve = async (writer) => {
    const written = writer.write(LARGE)
    writing.resolve(writer)
    await written
  }
  await ask()
  const writer = await writing.promise
  client?.destroy()
  await served.promise
  expect(getEventListeners(writer.signal, 'abort')).toHaveLength(0)
})

test.each([
  ['any', (writer: SSEWriter) => writer.write(LARGE)],
  ['the last long', (writer: SSEWriter) => writer.end(LARGE)],
  [
    'the last short',
    async (writer: SSEWriter, raw: ServerResponse) => {
      raw.write(LARGE)
      await writer.end('x')
      await once(raw, 'close')
    },
  ],
])('a client that takes nothing of %s text is cut off after a while', async (_, write) => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  let raw: ServerResponse | undefined
  serve = (writer, response) => {
    raw = response
    return write(writer, response)
  }
  await ask()
  await vi.waitFor(() => expect(raw?.writableLength).toBeGreaterThan(0))
  await vi.advanceTimersByTimeAsync(STUCK_CLIENT_TIMEOUT_MS)
  await served.promise
  expect(raw?.destroyed).toBe(true)
})
