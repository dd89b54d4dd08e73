import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import { fastify } from '@ash-ai/server/testing'

// The floor: bare Fastify → Unix socket → one of several processes → one SSE frame for each line. Run as
// `fastify-relay.ts <folder>`; a number sent to it is how many processes (`echo-peer.ts`) it shall have, and
// `POST /<n>` runs a turn in the n-th. It answers with its port.
const folder = process.argv[2] ?? ''
const peers: { send: (line: string, response: ServerResponse) => void }[] = []

const app = fastify()
app.post<{ Params: { peer: number } }>('/:peer', (request, reply) => {
  reply.hijack()
  reply.raw.writeHead(200, { 'content-type': 'text/event-stream' })
  peers[request.params.peer]?.send(`${JSON.stringify(request.body)}\n`, reply.raw)
})
await app.listen({ port: 0, host: '127.0.0.1' })

async function addPeer(): Promise<void> {
  const path = join(folder, `peer-${peers.length}.sock`)
  const peer = fork(new URL('./echo-peer.ts', import.meta.url), [path])
  await once(peer, 'message')
  let rest = ''
  let client: ServerResponse | undefined
  const socket = connect(path).setEncoding('utf8')
  socket.on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) {
      if (line === 'end') client?.end('event: done\ndata: {}\n\n')
      else client?.write(`event: message\ndata: ${line}\n\n`)
    }
  })
  peers.push({
    send: (line, response) => {
      client = response
      socket.write(line)
    },
  })
}

process.on('message', (count: number) => {
  void (async () => {
    while (peers.length < count) await addPeer()
    process.send?.((app.server.address() as AddressInfo).port)
  })()
})
process.on('disconnect', () => process.exit(0))
