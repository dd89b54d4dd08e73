import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { networkInterfaces } from 'node:os'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type HostedSandbox, LabHost } from '../support/lab-host.ts'
import { SERVER_KINDS, type ServerKind } from '../support/server-kinds.ts'

// Two web servers on this host: one that the policy names and one that it does not. Every attempt is judged by what
// reached the second, and by what the first was asked.

interface Site {
  port: number
  requests: { url: string; host: string; headers: http.IncomingHttpHeaders }[]
  connections: number
  close(): void
}

async function startSite(
  answer: (response: http.ServerResponse, request: http.IncomingMessage) => void,
): Promise<Site> {
  const site: Site = { port: 0, requests: [], connections: 0, close: () => server.close() }
  const server = http.createServer((request, response) => {
    site.requests.push({ url: request.url ?? '', host: request.headers.host ?? '', headers: request.headers })
    answer(response, request)
  })
  server.on('connection', () => {
    site.connections++
  })
  server.listen(0, '::')
  await once(server, 'listening')
  site.port = (server.address() as AddressInfo).port
  return site
}

let named: Site
let secret: Site
const KEY = 'sk-the-real-key-of-the-host'

beforeAll(async () => {
  secret = await startSite((response) => response.end('the secret of the host'))
  named = await startSite((response, request) => {
    if (request.url === '/redirect')
      response.writeHead(302, { location: `http://127.0.0.1:${secret.port}/` }).end()
    else
      response
        .writeHead(200, { 'x-api-key': KEY, 'x-reflected': JSON.stringify(request.headers) })
        .end('named')
  })
})
afterAll(() => {
  named?.close()
  secret?.close()
})
beforeEach(() => {
  named.requests.length = 0
})

const startLab = (kind: ServerKind) =>
  LabHost.start(kind, { upstream: { baseUrl: `http://127.0.0.1:${named.port}`, apiKey: KEY } })

/** Bytes as they are, to one of the two sockets that lead out. */
const raw = (socket: 'egress' | 'model', bytes: string) =>
  `node -e 'const s = require("node:net").connect("/run/ash/${socket}.sock"); s.on("error", () => {}); s.pipe(process.stdout);
    s.write(${JSON.stringify(bytes).replaceAll("'", '\\u0027')}); setTimeout(() => s.destroy(), 300)'`
const CURL = 'env no_proxy= NO_PROXY= curl -sS -m 4'
const own = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === 'IPv4' && !one.internal)?.address

type Attempt = [name: string, command: (n: number, s: number) => string]
const BYPASSES: Attempt[] = [
  ['asking for a raw address', (_, s) => `${CURL} http://127.0.0.1:${s}/`],
  ['asking by the name localhost', (_, s) => `${CURL} http://localhost:${s}/`],
  ['asking for an IPv6 address', (_, s) => `${CURL} -g 'http://[::1]:${s}/'`],
  ['asking for an IPv4 address in IPv6', (_, s) => `${CURL} -g 'http://[::ffff:127.0.0.1]:${s}/'`],
  ['asking for an address as one number', (_, s) => `${CURL} http://2130706433:${s}/`],
  ['asking for an address in hexadecimal', (_, s) => `${CURL} http://0x7f000001:${s}/`],
  ['asking for an address in octal', (_, s) => `${CURL} http://0177.0.0.1:${s}/`],
  ['asking for a short address', (_, s) => `${CURL} http://127.1:${s}/`],
  ['asking for the unspecified address', (_, s) => `${CURL} http://0.0.0.0:${s}/`],
  ['asking for the host’s own address', (_, s) => `${CURL} http://${own ?? '192.0.2.2'}:${s}/`],
  ['hiding the host behind a user name', (n, s) => `${CURL} http://127.0.0.1:${n}@127.0.0.1:${s}/`],
  ['following a redirect', (n) => `${CURL} -L http://127.0.0.1:${n}/redirect`],
  ['asking for a tunnel', (_, s) => `${CURL} -p http://127.0.0.1:${s}/`],
  ['connecting without the proxy', (_, s) => `curl -sS -m 4 --noproxy '*' http://127.0.0.1:${s}/`],
  [
    'speaking SOCKS to the proxy',
    (_, s) => `env -u http_proxy curl -sS -m 4 -x socks5h://\${HTTP_PROXY#http://} http://127.0.0.1:${s}/`,
  ],
  [
    'a Host header that disagrees',
    (n, s) => raw('egress', `GET http://127.0.0.1:${n}/ HTTP/1.1\r\nHost: 127.0.0.1:${s}\r\n\r\n`),
  ],
  [
    'two Host headers',
    (n, s) =>
      raw(
        'egress',
        `GET http://127.0.0.1:${n}/ HTTP/1.1\r\nHost: 127.0.0.1:${n}\r\nHost: 127.0.0.1:${s}\r\n\r\n`,
      ),
  ],
  [
    'a second request behind the first',
    (n, s) =>
      raw(
        'egress',
        `GET http://127.0.0.1:${n}/ HTTP/1.1\r\nHost: 127.0.0.1:${n}\r\n\r\nGET http://127.0.0.1:${s}/ HTTP/1.1\r\nHost: 127.0.0.1:${s}\r\n\r\n`,
      ),
  ],
  [
    'a target without a scheme',
    (_, s) => raw('egress', `GET //127.0.0.1:${s}/ HTTP/1.1\r\nHost: 127.0.0.1:${s}\r\n\r\n`),
  ],
]
const SMUGGLED = 'GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n'
const SMUGGLING: [name: string, headers: string, body: string][] = [
  ['a length and chunks', `Content-Length: 5\r\nTransfer-Encoding: chunked\r\n`, `0\r\n\r\n${SMUGGLED}`],
  ['two lengths', `Content-Length: 0\r\nContent-Length: ${SMUGGLED.length}\r\n`, SMUGGLED],
  ['an obscured encoding', `Content-Length: 5\r\nTransfer-Encoding : chunked\r\n`, `0\r\n\r\n${SMUGGLED}`],
  ['a folded header', `X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n`, SMUGGLED],
]

describe.each(SERVER_KINDS)('past the network policy of a server run by $name', (kind) => {
  let lab: LabHost
  let sandbox: HostedSandbox
  let open: HostedSandbox
  beforeAll(async () => {
    lab = await startLab(kind)
    sandbox = await lab.startSandbox({ network: [`127.0.0.1:${named.port}`] })
    open = await lab.startSandbox({ network: 'open' })
  })
  afterAll(() => lab?.dispose())

  test('the way that is allowed works', async () => {
    expect((await sandbox.exec(`${CURL} http://127.0.0.1:${named.port}/`)).stdout).toBe('named')
  })

  test.each(BYPASSES)('there is no way by %s', async (_, command) => {
    const { stdout } = await sandbox.exec(command(named.port, secret.port))
    expect([secret.connections, stdout.includes('the secret')]).toEqual([0, false])
  })

  test.each(BYPASSES.slice(0, 10))(
    'nor, where everything is open, into the host by %s',
    async (_, command) => {
      const { stdout } = await open.exec(command(named.port, secret.port))
      expect([secret.connections, stdout.includes('the secret')]).toEqual([0, false])
    },
  )

  test.each(['169.254.169.254', '[fd00:ec2::254]', '2852039166', '100.100.100.200'])(
    'a metadata service at %s is refused, even where everything is open',
    async (address) => {
      const { stdout } = await open.exec(
        `${CURL} -g -p http://${address}/latest/; ${CURL} -g http://${address}/latest/`,
      )
      expect(stdout).toContain('Ash: ')
    },
  )

  test('each refusal was told, under the one spelling of its host', async () => {
    const denied = async () => [...(await sandbox.heard()).denied, ...(await open.heard()).denied]
    await expect
      .poll(denied, { timeout: 10_000 })
      .toEqual(expect.arrayContaining(['169.254.169.254:80', `127.0.0.1:${secret.port}`]))
  })

  test.each(SMUGGLING)('no request can be smuggled by %s', async (_, headers, body) => {
    const head = `POST http://127.0.0.1:${named.port}/front HTTP/1.1\r\nHost: 127.0.0.1:${named.port}\r\n${headers}\r\n`
    await sandbox.exec(raw('egress', head + body))
    expect(named.requests.map(({ url }) => url)).not.toContain('/smuggled')
    expect(secret.connections).toBe(0)
  })

  test('no name can be looked up: DNS is no way out', async () => {
    const { stdout } = await open.exec(
      'getent hosts example.com; timeout 0.3 cat < /dev/udp/127.0.0.53/53; cat /etc/resolv.conf',
    )
    expect(stdout.trim()).toBe('')
  })
})

describe.each(SERVER_KINDS)('after the key of the model API of a server run by $name', (kind) => {
  let lab: LabHost
  let sandbox: HostedSandbox
  let other: HostedSandbox
  let otherToken: string
  beforeAll(async () => {
    lab = await startLab(kind)
    sandbox = await lab.startSandbox()
    other = await lab.startSandbox()
    otherToken = (await other.exec('echo $ANTHROPIC_API_KEY')).stdout.trim()
  })
  afterAll(() => lab?.dispose())
  const body = JSON.stringify({
    model: 'claude-haiku-4-5',
    max_tokens: 10,
    messages: [{ role: 'user', content: 'x' }],
  })
  const post = (target: string, token: string, more = '') =>
    raw(
      'model',
      `POST ${target} HTTP/1.1\r\nHost: x\r\nx-api-key: ${token}\r\n${more}Content-Length: ${body.length}\r\n\r\n${body}`,
    )

  test('its own token passes, and the key comes back in no header and no body', async () => {
    const { stdout } = await sandbox.exec(
      `curl -sS -i -m 4 -H "x-api-key: $ANTHROPIC_API_KEY" -H 'content-type: application/json' -d '${body}' $ANTHROPIC_BASE_URL/v1/messages`,
    )
    expect(stdout).toMatch(/^HTTP\/1.1 200/)
    expect(named.requests.at(-1)?.headers['x-api-key']).toBe(KEY)
    expect(stdout).not.toContain(KEY)
  })

  test.each([
    ['no token', () => post('/v1/messages', '')],
    ['a guess', () => post('/v1/messages', 'ash-session-guess')],
    ['the token of another sandbox', () => post('/v1/messages', otherToken)],
    ['two tokens', () => post('/v1/messages', 'a', `x-api-key: ${otherToken}\r\n`)],
    ['a tunnel', () => raw('model', 'CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n')],
  ])('nothing leaves with %s', async (_, command) => {
    const { stdout } = await sandbox.exec(command())
    expect(named.requests).toEqual([])
    expect(stdout).not.toContain(KEY)
  })

  test.each([
    ['another part of the API', '/v1/files'],
    ['a path that climbs', '/v1/messages/../files'],
    ['an escaped path', '/v1/messages/%2e%2e/files'],
    ['another host', 'http://evil.example/v1/messages'],
    ['a doubled slash', '//v1/messages'],
  ])('nothing leaves towards %s, even with the right token', async (_, target) => {
    const token = (await sandbox.exec('echo $ANTHROPIC_API_KEY')).stdout.trim()
    const { stdout } = await sandbox.exec(post(target, token))
    expect(named.requests).toEqual([])
    expect(stdout).not.toContain(KEY)
  })

  test('the key is nowhere inside: not in files, environments or memory that can be read', async () => {
    const search = `grep -rsal '${KEY.replace('r', '[r]')}' /proc/[0-9]*/environ /proc/[0-9]*/cmdline /etc /run /opt /agent /tmp ~ /workspace`
    expect((await sandbox.exec(`printf x; ${search}`)).stdout).toBe('x')
  })

  test('the sockets of another sandbox cannot be reached by any path', async () => {
    const { root, run } = other.dirs
    const places = ['model', 'egress'].flatMap((name) => [
      `${run}/${name}.sock`,
      `/proc/*/root${run}/${name}.sock`,
    ])
    const { stdout } = await sandbox.exec(`ls -d ${root} ${places.join(' ')} 2> /dev/null`)
    expect(stdout).toBe('')
  })
})
