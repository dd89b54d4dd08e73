import { once } from 'node:events'
import http, { type IncomingMessage } from 'node:http'
import https from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { certificate } from '@ash-ai/sandbox/testing'

export interface HttpsFront {
  port: number
  close(): void
}

/** What a proxy in production does: speaks https and passes everything on, saying so, to a port of this machine. */
export async function startHttpsFront(toPort: number): Promise<HttpsFront> {
  const pass = ({ method = 'GET', url = '/', headers: given }: IncomingMessage) => {
    const headers = { ...given, 'x-forwarded-proto': 'https' }
    return http.request({ host: '127.0.0.1', port: toPort, method, path: url, headers, agent: false })
  }
  const server = https.createServer(certificate(), (request, response) => {
    const further = pass(request).on('error', () => response.destroy())
    further.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    request.pipe(further)
  })
  server.on('upgrade', (request, client: Socket) => {
    const further = pass(request).on('error', () => client.destroy())
    further.on('response', ({ statusCode }) => client.end(`HTTP/1.1 ${statusCode} Refused\r\n\r\n`))
    further.on('upgrade', (answer: IncomingMessage, socket: Socket) => {
      const lines = Object.entries(answer.headers).map(([name, value]) => `${name}: ${value}\r\n`)
      client.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`)
      client.pipe(socket).pipe(client)
      socket.on('error', () => client.destroy())
      client.on('error', () => socket.destroy())
    })
    further.end()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = () => {
    server.close()
    server.closeAllConnections()
  }
  return { port: (server.address() as AddressInfo).port, close }
}
