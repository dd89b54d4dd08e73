import { createReadStream, createWriteStream } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { fastify } from '@ash-ai/server/testing'

// The floor of moving a file: bare Fastify that pipes the body of a PUT to the file it is started with, and that file
// into the answer to a GET. It sends its port to whoever started it.
const [, , path = ''] = process.argv

const app = fastify({ bodyLimit: Number.MAX_SAFE_INTEGER })
app.addContentTypeParser('*', (_request, payload, done) => done(null, payload))
app.put('/file', async ({ raw }) => {
  await pipeline(raw, createWriteStream(path))
  return { ok: true }
})
app.get('/file', (_request, reply) => reply.send(createReadStream(path)))
await app.listen({ port: 0, host: '127.0.0.1' })
process.send?.((app.server.address() as AddressInfo).port)
process.on('disconnect', () => process.exit(0))
