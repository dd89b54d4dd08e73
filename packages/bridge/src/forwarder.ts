import { type AddressInfo, connect, createServer } from 'node:net'

/** A port inside the sandbox that leads to the model proxy outside: clients of the API speak TCP, the way out is a socket. */
export async function startForwarder(socketPath: string): Promise<string> {
  const server = createServer((inside) => {
    const outside = connect(socketPath)
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
