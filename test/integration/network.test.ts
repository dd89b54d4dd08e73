import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { SessionEvent } from '@ash-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { deployTestAgent, endOf, scripted } from './support/conversation.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let website: Server
let port: number
beforeAll(async () => {
  website = createServer((_request, response) => response.end('hello from outside'))
  await new Promise<void>((resolve) => website.listen(0, '127.0.0.1', resolve))
  port = (website.address() as AddressInfo).port
  server = await startTestServer()
  await deployTestAgent(server.client)
})
afterAll(async () => {
  website.close()
  await server.close()
})

const curl = (url: string) => ({ command: `curl -sS -m 5 -w '\n%{http_code}' ${url}` })
const asked = () => `http://127.0.0.1:${port}/`
/** `curl` asks for loopback itself unless it is told not to. */
const throughProxy = (url: string) => ({
  command: `no_proxy= NO_PROXY= curl -sS -m 5 -w '\n%{http_code}' ${url}`,
})

async function denials(sessionId: string): Promise<SessionEvent[]> {
  const found: SessionEvent[] = []
  const stop = AbortSignal.timeout(400)
  try {
    for await (const event of server.client.sessions.follow(sessionId, { signal: stop })) {
      if (event.type === 'egress_denied') found.push(event)
    }
  } catch (error) {
    if (!stop.aborted) throw error
  }
  return found
}

describe('the network of a sandbox', () => {
  test('is none unless something is named, and the log says what would allow it', async () => {
    const session = await server.client.sessions.create({ agent: 'zebra' })
    expect(session.network).toBe('none')
    const { stdout } = await server.client.sessions.exec(session.id, curl('http://example.com/'))
    expect(stdout).toContain('network: ["example.com"]')
    expect(stdout.trim()).toMatch(/403$/)
    const direct = await server.client.sessions.exec(session.id, curl(asked()))
    expect(direct.exitCode).not.toBe(0)
    const [denied] = await eventually(
      () => denials(session.id),
      (events) => events.length > 0,
    )
    expect(denied).toMatchObject({
      data: { host: 'example.com', port: 80, setting: 'network: ["example.com"]' },
    })
    await server.client.sessions.end(session.id)
  })

  test('reaches what is named, and nothing else; a change applies at once', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra', network: [`127.0.0.1:${port}`] })
    expect((await server.client.sessions.exec(id, throughProxy(asked()))).stdout).toBe(
      'hello from outside\n200',
    )
    expect((await server.client.sessions.exec(id, throughProxy('http://127.0.0.1:1/'))).stdout).toMatch(
      /403$/,
    )
    await server.client.sessions.patch(id, { network: 'none' })
    expect((await server.client.sessions.exec(id, throughProxy(asked()))).stdout).toMatch(/403$/)
    expect(await server.client.sessions.get(id)).toMatchObject({ network: 'none' })
    await server.client.sessions.end(id)
  })

  test('does not reach the host even when it is open', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra', network: 'open' })
    expect((await server.client.sessions.exec(id, throughProxy(asked()))).stdout).toMatch(/403$/)
    expect((await server.client.sessions.exec(id, throughProxy('http://169.254.169.254/'))).stdout).toMatch(
      /403$/,
    )
    await server.client.sessions.end(id)
  })

  test('a setting that cannot be read is refused by name', async () => {
    const asking = server.client.sessions.create({ agent: 'zebra', network: ['http://example.com/x'] })
    await expect(asking).rejects.toMatchObject({ code: 'validation_failed' })
  })
})

describe('the model', () => {
  test('is metered by turn and session', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra', model: 'claude-haiku-4-5' })
    const usage = { input_tokens: 1000, output_tokens: 500 }
    const done = await endOf(server.client.sessions.send(id, scripted({ text: 'one', usage })))
    expect(done).toMatchObject({ modelUsage: { requests: 1, inputTokens: 1000, outputTokens: 500 } })
    await endOf(server.client.sessions.send(id, scripted({ text: 'two', usage })))
    const { usage: total } = await server.client.sessions.get(id)
    expect(total).toMatchObject({ requests: 2, inputTokens: 2000, outputTokens: 1000 })
    expect(total.usd).toBeGreaterThan(0)
    await server.client.sessions.end(id)
  })

  test('is refused before a request leaves when the budget does not hold it', async () => {
    const { id } = await server.client.sessions.create({
      agent: 'zebra',
      model: 'claude-haiku-4-5',
      budget: { maxUsd: 0.0001 },
    })
    const before = server.model.requests.length
    const end = await endOf(server.client.sessions.send(id, scripted({ text: 'too dear' })))
    expect(end).toMatchObject({
      type: 'error',
      code: 'model_api_error',
      error: expect.stringContaining('budget'),
    })
    expect(server.model.requests.length).toBe(before)
    await server.client.sessions.patch(id, { budget: { maxUsd: 5 } })
    expect(await server.client.sessions.send(id, scripted({ text: 'now it fits' })).text()).toBe(
      'now it fits',
    )
    await server.client.sessions.end(id)
  })

  test('a model without a price is refused under a USD budget', async () => {
    const { id } = await server.client.sessions.create({
      agent: 'zebra',
      model: 'nobody-knows-it',
      budget: { maxUsd: 5 },
    })
    const end = await endOf(server.client.sessions.send(id, scripted({ text: 'never' })))
    expect(end).toMatchObject({ type: 'error', error: expect.stringMatching(/price/) })
    await server.client.sessions.end(id)
  })

  test('is not a way around the network policy', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    const image = { type: 'image', source: { type: 'url', url: 'https://example.com/leak.png?secret' } }
    const before = server.model.requests.length
    const turn = server.client.sessions.send(id, [image, { type: 'text', text: 'look' }] as never)
    expect(await endOf(turn)).toMatchObject({ type: 'error', error: expect.stringContaining('example.com') })
    expect(server.model.requests.length).toBe(before)
    await server.client.sessions.end(id)
  })
})
