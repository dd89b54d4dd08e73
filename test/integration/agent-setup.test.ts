import type { SessionEvent } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent } from './support/conversation.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server.close())

async function logOf(sessionId: string): Promise<SessionEvent[]> {
  const found: SessionEvent[] = []
  const stop = AbortSignal.timeout(400)
  try {
    for await (const event of server.client.sessions.follow(sessionId, { signal: stop })) {
      if (event.type === 'log') found.push(event)
    }
  } catch (error) {
    if (!stop.aborted) throw error
  }
  return found
}

test('install.sh runs once for a session, startup.sh with each sandbox, both inside', async () => {
  await deployTestAgent(server.client, 'prepared', {
    'install.sh': 'echo installing on $(hostname) as $(id -u); echo once >> installed.txt',
    'startup.sh': 'echo started >> started.txt',
  })
  const { id } = await server.client.sessions.create({ agent: 'prepared' })
  expect(await server.client.files.readText(id, 'installed.txt')).toBe('once\n')
  expect(await logOf(id)).toContainEqual(
    expect.objectContaining({
      data: { level: 'info', source: 'install.sh', text: 'installing on ash as 1000\n' },
    }),
  )
  await server.client.sessions.pause(id)
  await server.client.sessions.resume(id)
  expect(await server.client.files.readText(id, 'installed.txt')).toBe('once\n')
  expect(await server.client.files.readText(id, 'started.txt')).toBe('started\nstarted\n')
  await server.client.sessions.end(id)
})

test('what the agent made of its scripts afterwards does not run', async () => {
  await deployTestAgent(server.client, 'rewriter', { 'startup.sh': 'echo original > which.txt' })
  const { id } = await server.client.sessions.create({ agent: 'rewriter' })
  await server.client.sessions.exec(id, {
    command: 'echo "echo changed > which.txt" > startup.sh; rm which.txt',
  })
  await server.client.sessions.pause(id)
  await server.client.sessions.resume(id)
  expect(await server.client.files.readText(id, 'which.txt')).toBe('original\n')
  await server.client.sessions.end(id)
})

test('a script that fails fails the start, says why, and leaves no sandbox', async () => {
  await deployTestAgent(server.client, 'broken', { 'install.sh': 'echo no such package; exit 3' })
  const creating = server.client.sessions.create({ agent: 'broken' })
  await expect(creating).rejects.toMatchObject({
    code: 'setup_failed',
    message: expect.stringContaining('install.sh of the agent ended with 3: no such package'),
  })
  const { sessions } = await server.client.sessions.list({ agent: 'broken' })
  expect(sessions).toMatchObject([{ status: 'error', error: { code: 'setup_failed' } }])
  expect((await server.client.health()).sandboxes.live).toBe(0)
  await server.client.sessions.end(sessions[0]?.id ?? '')
})
