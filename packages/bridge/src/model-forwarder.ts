import { type AddressInfo, connect, createServer } from 'node:net'

/** A port inside the sandbox that leads to the model proxy outside: clients of the API speak TCP, the way out is a socket. */
export async function startModelForwarder(socketPath: string): Promise<string> {
  const server = createServer((inside) => {
    const outside = connect(socketPath)
    inside.pipe(outside).pipe(inside)
    const end = () => {
      inside.destroy()
      outside.destroy()
    }
    inside.on('error', end).on('close', end)
    outside.on('error', end).on('close', end)
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  server.unref()
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
