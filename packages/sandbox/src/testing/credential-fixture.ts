import { execFileSync } from 'node:child_process'
import http from 'node:http'
import https from 'node:https'
import { text } from 'node:stream/consumers'
import type { Credential } from '../network/credential.ts'
import { listen, PUBLIC, startTestProxy } from './egress-fixture.ts'

export const SECRET = 'hunter2-hunter2'

export interface SeenRequest {
  method: string
  url: string
  headers: string[]
  body: string
}

let pair: { key: string; cert: string } | undefined

/** A key and a certificate for `api.test`, `up.test` and 127.0.0.1, which only itself vouches for. */
function tlsPair(): { key: string; cert: string } {
  if (pair) return pair
  const make =
    'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test -keyout - ' +
    '-addext subjectAltName=DNS:api.test,DNS:up.test,IP:127.0.0.1'
  const pem = execFileSync('openssl', make.split(' '), {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [key = '', cert = ''] = pem.split(/(?=-----BEGIN CERTIFICATE)/)
  pair = { key, cert }
  return pair
}

/** An API that tells what it was asked, over TLS or not. */
export async function startApi({
  isTls = true,
  handler,
}: {
  isTls?: boolean
  handler?: http.RequestListener
} = {}) {
  const seen: SeenRequest[] = []
  const answer: http.RequestListener = async (request, response) => {
    const { method = '', url = '', rawHeaders: headers } = request
    const entry = { method, url, headers, body: '' }
    seen.push(entry)
    if (handler) return handler(request, response)
    entry.body = await text(request)
    response.end(`hello from ${request.headers.host}${url}`)
  }
  const server = isTls ? https.createServer(tlsPair(), answer) : http.createServer(answer)
  return { port: await listen(server), seen }
}

/** Values of a header as the API saw them. */
export function headerOf({ headers }: SeenRequest, name: string): string[] {
  return headers.filter((_, index) => index % 2 === 1 && headers[index - 1]?.toLowerCase() === name)
}

/** A proxy under the policy `none` that trusts the API's certificate and gives this credential as `github`. */
export async function startCredentialProxy(
  credential: Partial<Credential> & { hosts: string[] },
  options: Parameters<typeof startTestProxy>[1] = {},
) {
  const given: Record<string, Credential> = {
    github: { scheme: { type: 'bearer' }, secret: SECRET, ...credential },
  }
  const proxy = await startTestProxy('none', {
    names: { 'api.test': [[PUBLIC]], 'up.test': [[PUBLIC]], 'other.test': [[PUBLIC]] },
    ca: tlsPair().cert,
    findCredential: async (name) => given[name],
    ...options,
  })
  return { ...proxy, given }
}
