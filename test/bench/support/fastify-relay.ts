import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { fastify } from '@ash-ai/server/testing'

// The floor: bare Fastify → Unix socket → one of several processes → one SSE frame for each line. Run as
// `fastify-relay.ts <folder> [bridge]`; a number sent to it is how many processes it shall have, and `POST /<n>` runs a
// turn in the n-th. It answers with its port. The processes are `echo-peer.ts`, or with `bridge` that file: Ash's own
// bridge, without a sandbox, spoken to in its own protocol.
const [, , folder = '', bridge] = process.argv
const peers: { send: (body: unknown, response: ServerResponse) => void }[] = []

const app = fastify()
app.post<{ Params: { peer: number } }>('/:peer', (request, reply) => {
  reply.hijack()
  reply.raw.writeHead(200, { 'content-type': 'text/event-stream' })
  peers[request.params.peer]?.send(request.body, reply.raw)
})
await app.listen({ port: 0, host: '127.0.0.1' })

interface Peer {
  socket: Socket
  toLine: (body: unknown) => string
  isLast: (line: string) => boolean
}

async function startEcho(path: string): Promise<Peer> {
  const child = fork(new URL('./echo-peer.ts', import.meta.url), [path])
  await once(child, 'message')
  return { socket: connect(path), toLine: (body) => JSON.stringify(body), isLast: (line) => line === 'end' }
}

async function startBridge(bundle: string): Promise<Peer> {
  const unused = join(folder, 'unused.sock')
  const env = {
    ASH_BRIDGE_FD: '3',
    ASH_WORKSPACE_DIR: folder,
    ASH_MODEL_SOCKET: unused,
    ASH_EGRESS_SOCKET: unused,
    ASH_CLAUDE: 'unused',
    HOME: folder,
  }
  const child = spawn(process.execPath, [bundle], { env, stdio: ['ignore', 'inherit', 'inherit', 'pipe'] })
  const socket = child.stdio[3] as Socket
  await once(socket, 'data') // It is ready.
  socket.write(`${JSON.stringify({ cmd: 'configure', id: '1', session: { sessionId: 's', env: {} } })}\n`)
  await once(socket, 'data')
  return {
    socket,
    toLine: (body) => JSON.stringify({ cmd: 'query', id: '2', options: {}, ...(body as object) }),
    isLast: (line) => line.startsWith('{"ev":"done"'),
  }
}

async function addPeer(): Promise<void> {
  const path = join(folder, `peer-${peers.length}.sock`)
  const { socket, toLine, isLast } = bridge === undefined ? await startEcho(path) : await startBridge(bridge)
  let rest = ''
  let client: ServerResponse | undefined
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) {
      if (isLast(line)) client?.end('event: done\ndata: {}\n\n')
      else client?.write(`event: message\ndata: ${line}\n\n`)
    }
  })
  peers.push({
    send: (body, response) => {
      client = response
      // An echo begins with the message itself; as many frames are one here.
      if (bridge !== undefined) response.write(`event: turn\ndata: ${JSON.stringify(body)}\n\n`)
      socket.write(`${toLine(body)}\n`)
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
