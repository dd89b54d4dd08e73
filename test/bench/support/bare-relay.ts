import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { createInterface } from 'node:readline'

// The least that any server like Ash has to do: HTTP → Unix socket → another process → SSE. Run as
// `bare-relay.ts <socket>`; the process behind the socket is `echo-peer.ts`.
const socketPath = process.argv[2] ?? ''
const peer: ChildProcess = fork(new URL('./echo-peer.ts', import.meta.url), [socketPath])
await once(peer, 'message')

const socket = connect(socketPath)
let waiting: ServerResponse | undefined
createInterface({ input: socket }).on('line', (line) => {
  if (line !== 'end') waiting?.write(`event: message\ndata: ${line}\n\n`)
  else waiting?.end('event: done\ndata: {}\n\n')
})

const server = createServer((request, response) => {
  let body = ''
  request.setEncoding('utf8')
  request.on('data', (chunk: string) => {
    body += chunk
  })
  request.on('end', () => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    waiting = response
    socket.write(`${JSON.stringify(JSON.parse(body))}\n`)
  })
})
server.listen(0, '127.0.0.1', () => {
  process.send?.((server.address() as AddressInfo).port)
})
process.on('disconnect', () => {
  peer.kill()
  process.exit(0)
})
