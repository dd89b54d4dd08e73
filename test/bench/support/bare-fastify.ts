import type { AddressInfo } from 'node:net'
import { fastify } from '@ash-ai/server/testing'

// The floor of a request: bare Fastify that answers a POST with a small JSON, about as long as a session. It sends its
// port to whoever started it.
const REPLY = {
  session: Object.fromEntries(Array.from({ length: 25 }, (_, n) => [`field${n}`, 'x'.repeat(20)])),
}

const app = fastify()
app.post('/', async () => REPLY)
await app.listen({ port: 0, host: '127.0.0.1' })
process.send?.((app.server.address() as AddressInfo).port)
process.on('disconnect', () => process.exit(0))
