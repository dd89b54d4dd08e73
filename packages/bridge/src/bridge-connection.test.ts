import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type BridgeCommand, UNSOLICITED } from '@ash-ai/shared'
import { expect, onTestFinished, test } from 'vitest'
import { BridgeConnection } from './bridge-connection.ts'

async function connectPair(): Promise<{ connection: BridgeConnection; socket: Socket; host: Socket }> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-bridge-'))
  const server = createServer().listen(join(dir, 'host.sock'))
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const socket = connect(join(dir, 'host.sock'))
  const [host] = (await accepted) as [Socket]
  onTestFinished(async () => {
    socket.destroy()
    host.destroy()
    server.close()
    await rm(dir, { recursive: true, force: true })
  })
  return { connection: new BridgeConnection(socket), socket, host }
}

test('commands are served in order, whole, and the host’s leaving ends it', async () => {
  const { connection, host } = await connectPair()
  const served: BridgeCommand[] = []
  const gone = connection.listen(async (command) => {
    served.push(command)
  })
  host.write('{"cmd":"ping","id":"1"}\n{"cmd":"exec","id":"2","comm')
  host.end('and":"ls","timeoutMs":1}\n')
  await gone
  expect(served).toEqual([
    { cmd: 'ping', id: '1' },
    { cmd: 'exec', id: '2', command: 'ls', timeoutMs: 1 },
  ])
})

test('a host that is killed ends it too', async () => {
  const { connection, host } = await connectPair()
  const gone = connection.listen(async () => {})
  // Closing with something unread is a reset.
  await connection.send({ ev: 'pong', id: '1' })
  host.destroy()
  await gone
})

test('a host that does not read holds the writers back, and gets everything in order once it reads', async () => {
  const { connection, socket, host } = await connectPair()
  const message = { type: 'stream_event', text: 'x'.repeat(64 * 1024) }
  let written = 0
  const writing = (async () => {
    for (let n = 0; n < 200; n++) {
      await connection.sendMessage('1', { ...message, n })
      written = n + 1
    }
    socket.end()
  })()
  await expect.poll(() => socket.writableNeedDrain).toBe(true)
  // At most the line under way waits in this process; the rest has not been made.
  expect(socket.writableLength).toBeLessThan(2 * 64 * 1024 + 200)
  const heldAt = written
  expect(heldAt).toBeLessThan(100)
  const lines = (await text(host)).trim().split('\n')
  await writing
  const numbers = lines.map((line) => (JSON.parse(line) as { data: { n: number } }).data.n)
  expect(numbers).toEqual(Array.from({ length: 200 }, (_, n) => n))
})

test('writers at the same time keep their order and whole lines', async () => {
  const { connection, socket, host } = await connectPair()
  const text64 = 'x'.repeat(64 * 1024)
  const sends = Array.from({ length: 50 }, (_, n) =>
    connection.send({ ev: 'log', id: UNSOLICITED, level: 'info', text: `${n} ${text64}` }),
  )
  const read = text(host)
  await Promise.all(sends)
  socket.end()
  const numbers = (await read)
    .trim()
    .split('\n')
    .map((line) => Number.parseInt(JSON.parse(line).text, 10))
  expect(numbers).toEqual(Array.from({ length: 50 }, (_, n) => n))
})

test('a writer held back by a host that dies is let go', async () => {
  const { connection, socket, host } = await connectPair()
  const gone = connection.listen(async () => {})
  const writing = (async () => {
    while (!socket.destroyed) await connection.sendMessage('1', { text: 'x'.repeat(64 * 1024) })
  })()
  await expect.poll(() => socket.writableNeedDrain).toBe(true)
  host.destroy()
  await gone
  await writing
  await connection.send({ ev: 'pong', id: '1' })
})
