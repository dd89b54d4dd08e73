import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, createServer, type ListenOptions, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { openTunnel } from './tunnel.ts'

const token = randomBytes(32).toString('hex')

async function listen(where: ListenOptions, serve: (socket: Socket) => void): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {})
    serve(socket)
  }).listen(where)
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return server
}

const portOf = (server: Server) => (server.address() as AddressInfo).port

/** Somebody outside, and a tunnel to a port in here. */
async function tunnelTo(port: number) {
  const dir = await mkdtemp(join(tmpdir(), 'ash-tunnel-'))
  onTestFinished(() => rm(dir, { recursive: true, force: true }))
  const path = join(dir, 'tunnel.sock')
  const { promise, resolve } = Promise.withResolvers<Socket>()
  await listen({ path }, resolve)
  return { result: await openTunnel(path, { port, token }), outside: promise, path }
}

test.each(['127.0.0.1', '::1'])('the bytes of a port on %s pass, behind the token', async (host) => {
  const server = await listen({ port: 0, host }, (socket) => socket.pipe(socket))
  const { result, outside } = await tunnelTo(portOf(server))
  expect(result).toEqual({ connected: true })
  const socket = await outside
  const sent = randomBytes(5_000_000)
  socket.end(sent)
  const received = await buffer(socket)
  expect(received.subarray(0, 65).toString()).toBe(`${token}\n`)
  expect(received.subarray(65).equals(sent)).toBe(true)
})

test('where nothing listens there is no tunnel, and nobody outside hears of it', async () => {
  const server = await listen({ port: 0, host: '127.0.0.1' }, () => {})
  const port = portOf(server)
  server.close()
  expect((await tunnelTo(port)).result).toEqual({ connected: false })
})

test.each(['inside', 'outside'] as const)('when %s goes away, so does the other end', async (leaver) => {
  const inside = Promise.withResolvers<Socket>()
  const server = await listen({ port: 0, host: '127.0.0.1' }, inside.resolve)
  const { outside } = await tunnelTo(portOf(server))
  const ends = { inside: await inside.promise, outside: await outside }
  const other = ends[leaver === 'inside' ? 'outside' : 'inside']
  const closed = new Promise((resolve) => other.once('close', resolve))
  other.resume()
  ends[leaver].destroy()
  // Whoever goes on sending hears of it.
  const sending = setInterval(() => other.write('still there?'), 5)
  await closed
  clearInterval(sending)
})
