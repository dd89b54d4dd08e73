import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { SessionCreate } from '@ash-ai/sdk'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { endOf, scripted } from './support/conversation.ts'
import { countCreates, endSessions, readySpares } from './support/pool-view.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const AGENT_SECRET = 'agent-secret-4711'
const SESSION_SECRET = 'session-secret-4711'
const CREDENTIAL = 'credential-4711-0123456789'

let server: TestServer

const deploy = () =>
  server.client.agents.deploy({
    name: 'ready',
    systemPrompt: 'You are ready.',
    env: { AGENT_SECRET },
    config: { warm: 2 },
  })
const create = async (about: Partial<SessionCreate> = {}) =>
  (await server.client.sessions.create({ agent: 'ready', ...about })).id
const run = async (id: string, command: string) => (await server.client.sessions.exec(id, { command })).stdout

/** Two sessions of spares: one as asked for, one that asked for nothing. */
async function claimTwo(about: Partial<SessionCreate>): Promise<[string, string]> {
  await readySpares(server, 2)
  const ids: string[] = []
  const make = async () => ids.push(await create(about), await create())
  expect(await countCreates(server, make)).toEqual({ warm: 2, cold: 0 })
  const [own = '', other = ''] = ids
  return [own, other]
}

describe('a session that claimed a spare', () => {
  let website: Server
  let host: string
  const asked: (string | undefined)[] = []
  beforeAll(async () => {
    website = createServer(({ headers }, response) => {
      asked.push(headers.authorization)
      response.end('hello')
    })
    await new Promise<void>((listening) => website.listen(0, '127.0.0.1', listening))
    host = `127.0.0.1:${(website.address() as AddressInfo).port}`
    server = await startTestServer()
    await deploy()
  })
  afterEach(() => endSessions(server))
  afterAll(async () => {
    website.close()
    await server.close()
  })

  test('has its own environment, and the agent’s', async () => {
    const [own, other] = await claimTwo({ env: { SESSION_SECRET } })
    const show = 'echo $SESSION_SECRET,$AGENT_SECRET,$ANTHROPIC_API_KEY'
    const [mine, theirs] = [await run(own, show), await run(other, show)]
    expect(mine).toMatch(new RegExp(`^${SESSION_SECRET},${AGENT_SECRET},ash-session-\\S+\n$`))
    expect(theirs).toMatch(new RegExp(`^,${AGENT_SECRET},ash-session-\\S+\n$`))
    expect(mine.split(',')[2]).not.toBe(theirs.split(',')[2])
  })

  test('reaches what it may, and another does not', async () => {
    const [own, other] = await claimTwo({ network: [host] })
    const curl = `no_proxy= NO_PROXY= curl -sS -m 5 -w ' %{http_code}' http://${host}/`
    expect(await run(own, curl)).toBe('hello 200')
    expect(await run(other, curl)).toMatch(/403$/)
    const { events } = await server.client.sessions.events(other, { types: ['egress_denied'] })
    expect(events).toMatchObject([{ data: { host: '127.0.0.1' } }])
    expect((await server.client.sessions.events(own, { types: ['egress_denied'] })).events).toEqual([])
  })

  test('uses its credentials, and another does not', async () => {
    const { client } = server
    const scheme = { type: 'bearer' as const }
    await client.credentials.create({ name: 'site', hosts: [`http://${host}`], scheme, secret: CREDENTIAL })
    const [own, other] = await claimTwo({ credentials: ['site'] })
    const curl = "curl -sS -m 5 -w ' %{http_code}' http://site.credentials.ash/"
    asked.length = 0
    expect(await run(own, curl)).toBe('hello 200')
    expect(await run(other, curl)).toMatch(/ 40[34]$/)
    expect(asked).toEqual([`Bearer ${CREDENTIAL}`])
    await client.credentials.delete('site')
  })

  test('has its own budget and model, and its turns are its own', async () => {
    const { client } = server
    const [own, other] = await claimTwo({ model: 'claude-haiku-4-5', budget: { maxUsd: 0.0001 } })
    const dear = await endOf(client.sessions.send(own, scripted({ text: 'too dear' })))
    expect(dear).toMatchObject({ type: 'error', error: expect.stringContaining('budget') })
    expect(await client.sessions.send(other, scripted({ text: 'fine' })).text()).toBe('fine')
    expect(await client.sessions.get(own)).toMatchObject({
      usage: { requests: 0 },
      budget: { maxUsd: 0.0001 },
    })
    expect((await client.sessions.get(other)).usage.requests).toBeGreaterThan(0)
  })

  test('is paused, stopped and resumed like any other', async () => {
    const { client } = server
    const [own] = await claimTwo({ env: { SESSION_SECRET } })
    await run(own, 'echo kept > file')
    await client.sessions.pause(own)
    expect(await client.sessions.resume(own)).toMatchObject({ resumed: 'warm' })
    await client.sessions.stop(own)
    expect(await client.sessions.resume(own)).toMatchObject({ resumed: 'cold_local' })
    expect(await run(own, 'cat file; echo $SESSION_SECRET')).toBe(`kept\n${SESSION_SECRET}\n`)
  })
})

test('a server without isolation has spares as well', async () => {
  server = await startTestServer({ env: { ASH_PROVIDER: 'process' } })
  try {
    await deploy()
    const [own, other] = await claimTwo({ env: { SESSION_SECRET } })
    const show = 'echo $SESSION_SECRET,$AGENT_SECRET; cat CLAUDE.md'
    expect(await run(own, show)).toMatch(`${SESSION_SECRET},${AGENT_SECRET}\nYou are ready.`)
    expect(await run(other, show)).toMatch(`,${AGENT_SECRET}\nYou are ready.`)
    await server.client.sessions.stop(own)
    expect(await run(own, 'echo $SESSION_SECRET')).toBe(`${SESSION_SECRET}\n`)
  } finally {
    await server.close()
  }
})
