import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent, readLog, scripted } from './support/conversation.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
})
afterAll(() => server.close())

test('a sandbox that sends more than its rate is slowed down, loses nothing, and its log tells it once', async () => {
  const { sessions } = server.client
  const [slow, neighbour] = await Promise.all([
    sessions.create({ agent: 'zebra', limits: { outputMbPerSecond: 1 } }),
    sessions.create({ agent: 'zebra' }),
  ])
  expect([slow.limits.outputMbPerSecond, neighbour.limits.outputMbPerSecond]).toEqual([1, 32])
  const bytes = 8_000_000 // Two of them are more than the burst, 8 MB at this rate.
  const floods = [1, 2].map(() =>
    sessions.exec(slow.id, { command: `head -c ${bytes} /dev/zero | tr '\\0' x` }),
  )
  const turn = sessions.send(slow.id, scripted({ text: 'all of it' })).text()
  expect(await sessions.send(neighbour.id, scripted({ text: 'as ever' })).text()).toBe('as ever')
  const whole = { exitCode: 0, truncated: false, stdout: 'x'.repeat(bytes) }
  for (const flood of floods) expect(await flood).toMatchObject(whole)
  expect(await turn).toBe('all of it')
  expect(await sessions.send(slow.id, scripted({ text: 'and on' })).text()).toBe('and on')
  const hits = (await readLog(server.client, slow.id, 2)).filter(({ type }) => type === 'limit')
  const limit = { code: 'output_limit', resource: 'outputMbPerSecond', limit: 1, count: 1 }
  expect(hits).toMatchObject([{ data: limit }])
  await Promise.all([sessions.end(slow.id), sessions.end(neighbour.id)])
})
