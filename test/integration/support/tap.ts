import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export interface Tap {
  port: number
  /** Everything that clients have sent. */
  sent(): string
  close(): void
}

/** A port that leads to another one of this machine and remembers what was sent there. */
export async function startTap(toPort: number): Promise<Tap> {
  const chunks: Buffer[] = []
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    const further = connect(toPort, '127.0.0.1')
    for (const [from, to] of [
      [client, further],
      [further, client],
    ] as const) {
      sockets.add(from)
      from.on('error', () => to.destroy()).on('close', () => to.destroy())
      from.pipe(to)
    }
    client.on('data', (chunk) => chunks.push(chunk as Buffer))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = () => {
    server.close()
    for (const socket of sockets) socket.destroy()
  }
  const { port } = server.address() as AddressInfo
  return { port, sent: () => Buffer.concat(chunks).toString('latin1'), close }
}
