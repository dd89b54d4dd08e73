import { execFile } from 'node:child_process'
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { proxyEnv } from './proxy-env.ts'

const run = promisify(execFile)

/** Serves on loopback and notes how it was asked: as a proxy or as a site. */
async function startServer(): Promise<{ url: string; seen: string[] }> {
  const seen: string[] = []
  const server = http.createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`)
    response.end('ok')
  })
  server.on('connect', (request, socket) => {
    seen.push(`CONNECT ${request.url}`)
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen }
}

const FETCH = 'await Promise.allSettled(process.argv.slice(1).map((url) => fetch(url)))'

test.each([
  ['Node’s fetch', process.execPath, ['--input-type=module', '-e', FETCH]],
  ['curl', 'curl', ['-s']],
])('%s goes through the proxy to the world and straight to its own machine', async (_, command, args) => {
  const [proxy, site] = [await startServer(), await startServer()]
  const env = { PATH: process.env.PATH, ...proxyEnv(proxy.url) }
  await run(command, [...args, 'http://site.test/x', 'https://site.test/y', site.url], { env }).catch(
    () => {},
  )
  expect(
    proxy.seen.toSorted().map((line) => line.replace('CONNECT site.test:80', 'GET http://site.test/x')),
  ).toEqual(['CONNECT site.test:443', 'GET http://site.test/x'])
  expect(site.seen).toEqual(['GET /'])
})
