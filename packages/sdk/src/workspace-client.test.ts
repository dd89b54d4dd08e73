import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { isAshError } from '@ash-ai/shared'
import { afterEach, describe, expect, test } from 'vitest'
import { AshClient, type AshClientOptions } from './client.ts'
import { sendJson } from './testing/http-server.ts'

const REPLY = { session: { id: 's' }, checkpoint: { id: 'c' } }
const PART = new Uint8Array(64 * 1024).fill(7)

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

/** Unlike the common test server, this one decides by itself how much of a body it reads. */
async function serve(answer: RequestListener, options: AshClientOptions = {}): Promise<AshClient> {
  const server = createServer(answer)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closers.push(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  return new AshClient({ baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, ...options })
}

async function lengthOf(parts: AsyncIterable<Uint8Array>): Promise<number> {
  let length = 0
  for await (const part of parts) length += part.length
  return length
}

/** `count` parts, each when it is asked for, after `before`. */
function archive(count: number, before = async () => {}, cancel = () => {}): ReadableStream<Uint8Array> {
  let sent = 0
  return new ReadableStream({
    cancel,
    async pull(controller) {
      await before()
      if (sent++ < count) controller.enqueue(PART)
      else controller.close()
    },
  })
}

describe('a download', () => {
  test('is the archive as it arrives', async () => {
    let url: string | undefined
    const { workspace } = await serve((request, response) => {
      url = request.url
      response.writeHead(200, { 'content-type': 'application/gzip' })
      response.write(PART)
      response.end(PART)
    })
    expect(await lengthOf(await workspace.download('s', { checkpointId: 'c' }))).toBe(2 * PART.length)
    expect(url).toBe('/api/sessions/s/workspace?checkpointId=c')
  })

  test('that breaks in the middle is no short archive but an error', async () => {
    const { workspace } = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'application/gzip' })
      response.write(PART, () => response.destroy())
    })
    const parts = await workspace.download('s')
    await expect(lengthOf(parts)).rejects.toMatchObject({ name: 'AshConnectionError', reason: 'lost' })
  })

  test('that stops coming ends in a time-out', async () => {
    const { workspace } = await serve(
      (_, response) => response.writeHead(200, { 'content-type': 'application/gzip' }).write(PART),
      { idleTimeoutMs: 50 },
    )
    const parts = await workspace.download('s')
    await expect(lengthOf(parts)).rejects.toMatchObject({ reason: 'timeout' })
  })

  test('of something else is refused', async () => {
    const { workspace } = await serve((_, response) => sendJson(response, 200, {}))
    await expect(workspace.download('s')).rejects.toMatchObject({ name: 'AshReplyError' })
  })

  test('lets go of the connection when the loop is left', async () => {
    const closed = Promise.withResolvers<void>()
    const { workspace } = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'application/gzip' }).write(PART)
      response.on('close', () => closed.resolve())
    })
    for await (const _ of await workspace.download('s')) break
    await closed.promise
  })
})

describe('an upload', () => {
  test('sends bytes, or a stream of any length', async () => {
    const seen: [string | undefined, string | undefined, number][] = []
    const { workspace } = await serve(async (request, response) => {
      const length = await lengthOf(request)
      seen.push([request.url, request.headers['content-type'], length])
      sendJson(response, 200, REPLY)
    })
    expect(await workspace.upload('s', PART)).toEqual(REPLY)
    expect(await workspace.upload('s', archive(100), { replace: true })).toEqual(REPLY)
    expect(seen).toEqual([
      ['/api/sessions/s/workspace', 'application/gzip', PART.length],
      ['/api/sessions/s/workspace?replace=true', 'application/gzip', 100 * PART.length],
    ])
  })

  test('may take longer than its time-out as long as something moves', async () => {
    const { workspace } = await serve(async (request, response) => {
      await lengthOf(request)
      sendJson(response, 200, REPLY)
    })
    const slow = archive(25, () => new Promise((resolve) => setTimeout(resolve, 50)))
    expect(await workspace.upload('s', slow, { timeoutMs: 1000 })).toEqual(REPLY)
  })

  test('that stops moving ends in a time-out and lets go of its source', async () => {
    const cancelled = Promise.withResolvers<unknown>()
    const { workspace } = await serve((request) => request.resume())
    const stuck = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(PART),
      cancel: (reason) => cancelled.resolve(reason),
    })
    await expect(workspace.upload('s', stuck, { timeoutMs: 50 })).rejects.toMatchObject({ reason: 'timeout' })
    await cancelled.promise
  })

  test('that is refused before it is read says why, and is not sent again', async () => {
    let requests = 0
    const cancelled = Promise.withResolvers<void>()
    const { workspace } = await serve((_, response) => {
      requests++
      sendJson(response, 409, {
        error: 'busy',
        code: 'turn_in_progress',
        statusCode: 409,
        requestId: 'r',
      })
    })
    const source = archive(Number.POSITIVE_INFINITY, undefined, () => cancelled.resolve())
    await expect(workspace.upload('s', source)).rejects.toSatisfy((error) =>
      isAshError(error, 'turn_in_progress'),
    )
    expect(requests).toBe(1)
    await cancelled.promise
  })

  test('whose source fails reports that failure', async () => {
    const { workspace } = await serve((request) => request.on('error', () => {}).resume())
    const failing = archive(3, async () => {
      throw new Error('unreadable')
    })
    await expect(workspace.upload('s', failing)).rejects.toThrow('unreadable')
  })
})
