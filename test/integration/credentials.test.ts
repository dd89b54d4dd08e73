import { execFileSync } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { createServer, type RequestListener, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { SessionEvent } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent } from './support/conversation.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const SECRET = 'hunter2-0123456789abcdef'
const ROTATED = 'rotated-0123456789abcdef'

let certificates: string
let server: TestServer
/** One API twice: over TLS, and without it. */
let apis: Server[]
let ports: number[]
const seen: { url: string | undefined; authorization: string | undefined; key: string | undefined }[] = []

const answer: RequestListener = ({ url, headers }, response) => {
  const { authorization, 'x-api-key': key } = headers
  seen.push({ url, authorization, key: key?.toString() })
  response.writeHead(200, { 'set-cookie': 'session=1', 'x-seen': String(seen.length) }).end(`hello ${url}`)
}

beforeAll(async () => {
  certificates = await mkdtemp(join(tmpdir(), 'ash-test-ca-'))
  const files = { key: join(certificates, 'key.pem'), cert: join(certificates, 'cert.pem') }
  const make =
    'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test ' +
    `-addext subjectAltName=IP:127.0.0.1 -keyout ${files.key} -out ${files.cert}`
  execFileSync('openssl', make.split(' '), { stdio: 'ignore' })
  const pair = { key: await readFile(files.key), cert: await readFile(files.cert) }
  apis = [createTlsServer(pair, answer), createServer(answer)]
  await Promise.all(apis.map((api) => new Promise<void>((done) => api.listen(0, '127.0.0.1', done))))
  ports = apis.map((api) => (api.address() as AddressInfo).port)
  server = await startTestServer({ env: { NODE_EXTRA_CA_CERTS: files.cert } })
  await deployTestAgent(server.client)
  await server.client.credentials.create({
    name: 'github',
    hosts: [`127.0.0.1:${ports[0]}`, `http://127.0.0.1:${ports[1]}`],
    scheme: { type: 'bearer' },
    secret: SECRET,
  })
})
afterAll(async () => {
  for (const api of apis) api.close()
  await server.close()
  await rm(certificates, { recursive: true })
})

const curl = (path: string, more = '') => ({
  command: `curl -sS -m 10 -i ${more} 'http://github.credentials.ash${path}'`,
})

/** The log of a session as far as it goes. */
async function eventsOf(sessionId: string): Promise<SessionEvent[]> {
  const events: SessionEvent[] = []
  const stop = AbortSignal.timeout(400)
  try {
    for await (const event of server.client.sessions.follow(sessionId, { signal: stop })) events.push(event)
  } catch (error) {
    if (!stop.aborted) throw error
  }
  return events
}

test('a sandbox without network uses a credential that is nowhere to be found', async () => {
  const { client } = server
  const session = await client.sessions.create({ agent: 'zebra', credentials: ['github'] })
  expect(session).toMatchObject({ network: 'none', credentials: ['github'] })
  const { id } = session
  const run = async (command: string) => (await client.sessions.exec(id, { command })).stdout

  const overTls = (await client.sessions.exec(id, curl('/user?a=b', "-H 'Authorization: Bearer own'"))).stdout
  expect(overTls).toMatch(/^HTTP\/1.1 200[\s\S]*hello \/user\?a=b$/)
  expect(overTls).not.toMatch(/set-cookie/i)
  expect(seen.at(-1)).toMatchObject({ url: '/user?a=b', authorization: `Bearer ${SECRET}` })
  const plain = await client.sessions.exec(
    id,
    curl('/plain', `-H 'X-Ash-Host: http://127.0.0.1:${ports[1]}'`),
  )
  expect(plain.stdout).toMatch(/hello \/plain$/)
  expect(seen.at(-1)).toMatchObject({ url: '/plain', authorization: `Bearer ${SECRET}` })
  const node = `/opt/ash/node -e "fetch('http://github.credentials.ash/fetch').then((r) => r.text()).then(console.log)"`
  expect(await run(node)).toBe('hello /fetch\n')

  const processes = await run('env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null')
  expect(processes).toContain('ANTHROPIC_API_KEY')
  expect(processes).not.toContain(SECRET)
  const search = (pattern: string) =>
    run(`grep -rsl '${pattern}' /workspace /home /tmp /agent /etc /run /dev/shm`)
  expect(await search('You are Zebra')).toContain('/workspace/CLAUDE.md')
  expect(await search(SECRET)).toBe('')

  await client.credentials.create({
    name: 'github',
    hosts: [`127.0.0.1:${ports[0]}`],
    scheme: { type: 'header', name: 'X-Api-Key' },
    secret: ROTATED,
  })
  expect((await client.sessions.exec(id, curl('/rotated'))).stdout).toMatch(/hello \/rotated$/)
  expect(seen.at(-1)).toMatchObject({ url: '/rotated', authorization: undefined, key: ROTATED })

  await client.sessions.pause(id)
  expect((await client.sessions.exec(id, curl('/resumed'))).stdout).toMatch(/hello \/resumed$/)

  await client.sessions.patch(id, { credentials: [] })
  const before = seen.length
  const refused = (await client.sessions.exec(id, curl('/gone'))).stdout
  expect(refused).toMatch(/^HTTP\/1.1 403[\s\S]*credentials: \["github"\]/)
  expect(seen).toHaveLength(before)
  const events = await eventually(
    () => eventsOf(id),
    (found) => found.some(({ type }) => type === 'egress_denied'),
  )
  const denied = events.find(({ type }) => type === 'egress_denied')
  expect(denied).toMatchObject({
    data: { host: 'github.credentials.ash', setting: 'credentials: ["github"]' },
  })

  for (const secret of [SECRET, ROTATED]) {
    expect(JSON.stringify(events)).not.toContain(secret)
    expect(server.log()).not.toContain(secret)
    expect(await filesWith(secret, server.dataDir)).toEqual([])
  }
  await client.sessions.end(id)
})

test('another session does not have it, and one that names none that is there is not made', async () => {
  const { client } = server
  const { id } = await client.sessions.create({ agent: 'zebra', network: 'open' })
  const before = seen.length
  expect((await client.sessions.exec(id, curl('/'))).stdout).toMatch(/^HTTP\/1.1 403/)
  expect(seen).toHaveLength(before)
  await client.sessions.end(id)
  await expect(client.sessions.create({ agent: 'zebra', credentials: ['gitlab'] })).rejects.toMatchObject({
    code: 'validation_failed',
    details: [{ path: 'credentials.0' }],
  })
})

/** Files below a folder whose bytes hold the text: the database, its write-ahead log, workspaces and all else. */
async function filesWith(text: string, folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
  expect(files.some((file) => file.endsWith('ash.db'))).toBe(true)
  const found = await Promise.all(
    files.map(async (file) => (await readFile(file).catch(() => Buffer.alloc(0))).includes(text)),
  )
  return files.filter((_, index) => found[index])
}
