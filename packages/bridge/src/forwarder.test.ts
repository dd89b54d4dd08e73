import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import http from 'node:http'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { startForwarder } from './forwarder.ts'

async function listen(server: Server): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-bridge-'))
  const path = join(dir, 'model.sock')
  server.listen(path)
  await once(server, 'listening')
  onTestFinished(async () => {
    server.close()
    await rm(dir, { recursive: true, force: true })
  })
  return path
}

function dial(url: string): Socket {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  onTestFinished(() => {
    socket.destroy()
  })
  return socket
}

test('a request over TCP is answered by whoever listens on the socket', async () => {
  const path = await listen(
    http.createServer((request, response) => response.end(`${request.method} ${request.url}`)),
  )
  const url = await startForwarder(path)
  expect(new URL(url).hostname).toBe('127.0.0.1')
  const response = await fetch(`${url}/v1/messages`, {
    method: 'POST',
    body: '{}',
    headers: { connection: 'close' },
  })
  expect(await response.text()).toBe('POST /v1/messages')
})

test('a long answer arrives whole at a slow reader although the other side has closed', async () => {
  const bytes = 32 * 1024 * 1024
  const closed = Promise.withResolvers<void>()
  const path = await listen(
    createServer((socket) => {
      socket.on('close', () => closed.resolve())
      socket.resume().end(Buffer.alloc(bytes, 'x'))
    }),
  )
  const socket = dial(await startForwarder(path))
  let received = 0
  socket.once('data', (chunk: Buffer) => {
    received += chunk.length
    socket.pause()
  })
  await once(socket, 'data')
  socket.on('data', (chunk: Buffer) => {
    received += chunk.length
    socket.pause()
    setImmediate(() => socket.resume())
  })
  socket.resume()
  await once(socket, 'end')
  await closed.promise
  expect(received).toBe(bytes)
})

test('a client that goes away closes its connection outside', async () => {
  const accepted = Promise.withResolvers<Socket>()
  const path = await listen(createServer((socket) => accepted.resolve(socket)))
  const socket = dial(await startForwarder(path))
  socket.write('POST')
  const outside = await accepted.promise
  const gone = once(outside.resume(), 'close')
  socket.destroy()
  await gone
})

test('a socket nobody listens on ends the connection instead of hanging', async () => {
  const socket = dial(await startForwarder('/nonexistent/model.sock'))
  expect(await text(socket).catch(() => 'reset')).toMatch(/^(reset)?$/)
})
