import { type AddressInfo, connect, createServer } from 'node:net'

/**
 * A port inside the sandbox that leads to a socket of a proxy outside: programs speak TCP, the way out is a socket.
 * Either side may finish sending before the other, as the ends of a tunnel do.
 */
export async function startForwarder(socketPath: string): Promise<string> {
  const server = createServer({ allowHalfOpen: true }, (inside) => {
    const outside = connect({ path: socketPath, allowHalfOpen: true })
    inside.pipe(outside).pipe(inside)
    inside.on('error', () => outside.destroy()).on('close', () => outside.destroy())
    // Not destroyed when the other side merely closes: what it sent last may still be on its way in.
    outside.on('error', () => inside.destroy()).on('close', () => inside.end())
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  server.unref()
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
