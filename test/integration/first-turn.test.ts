import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { collect, deployTestAgent, scripted } from './support/conversation.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
})
afterAll(() => server.close())

const bash = (command: string) => ({ tool: 'Bash', input: { command, description: 'test' } })

test('deploy, a turn that writes a file, the file, a turn that remembers, the end', async () => {
  const { client } = server
  const session = await client.sessions.create({ agent: 'zebra' })
  expect(session).toMatchObject({ status: 'active', agentName: 'zebra', agentVersion: 1, isolation: 'bwrap' })

  const first = scripted(bash('echo "made inside" > note.txt; hostname'), {
    text: 'the host is {{toolResult}}',
  })
  expect(await client.sessions.send(session.id, first).text()).toBe('the host is ash')
  const { files } = await client.files.list(session.id)
  expect(files.map((file) => file.path)).toEqual(['CLAUDE.md', 'note.txt'])
  expect(await client.files.readText(session.id, 'note.txt')).toBe('made inside\n')

  const second = scripted({ text: 'turn {{turn}}, you said: {{prompts}}' })
  const answer = await client.sessions.send(session.id, second).text()
  expect(answer).toContain('turn 1, you said: go')
  expect(answer).toContain('made inside')

  const ended = await client.sessions.end(session.id)
  expect(ended.status).toBe('ended')
  expect(await readdir(join(server.dataDir, 'sandboxes'))).toEqual([])
  await expect(client.sessions.send(session.id, 'hello?').text()).rejects.toMatchObject({
    code: 'session_ended',
  })
  await expect(client.sessions.resume(session.id)).rejects.toMatchObject({
    code: 'session_gone',
    statusCode: 410,
  })
})

test("the agent's folder reaches the model, and only the proxy knows the key", async () => {
  const { client, model } = server
  const session = await client.sessions.create({ agent: 'zebra', env: { GREETING: 'good day' } })
  const prompt = scripted(bash('env'), { text: '{{toolResult}}' })
  const environment = await client.sessions.send(session.id, prompt).text()
  expect(environment).toContain('GREETING=good day')
  expect(environment).not.toContain('sk-real-key')
  expect(environment).not.toContain(server.apiKey)
  const request = model.requests.findLast(({ prompts }) => prompts.includes(prompt))
  expect(JSON.stringify(request?.body)).toContain('You are Zebra')
  expect(request?.headers['x-api-key']).toBe('sk-real-key')
  await client.sessions.end(session.id)
})

test('the stream carries the SDK messages unchanged and ends with one durable done', async () => {
  const { client } = server
  const session = await client.sessions.create({ agent: 'zebra' })
  const events = await collect(
    client.sessions.send(session.id, scripted({ text: 'hello' }), { includePartialMessages: true }),
  )
  expect(events[0]).toMatchObject({ type: 'turn' })
  expect(events.at(-1)).toMatchObject({ type: 'done', sessionId: session.id, stopReason: 'end_turn' })
  expect(events.filter((event) => event.type === 'done')).toHaveLength(1)
  const previews = events.filter((event) => event.id.includes('.'))
  expect(previews.length).toBeGreaterThan(0)
  expect(previews.every((event) => event.type === 'message' && event.message.type === 'stream_event')).toBe(
    true,
  )
  const entries = events.filter((event) => !event.id.includes('.'))
  const firstSeq = Number(entries[0]?.id)
  expect(entries.map((event) => Number(event.id))).toEqual(entries.map((_, index) => firstSeq + index))

  const { messages } = await client.sessions.messages(session.id)
  const streamed = entries.filter((event) => event.type === 'message').map((event) => event.message)
  expect(messages.filter((entry) => entry.type === 'message').map((entry) => entry.data)).toEqual(streamed)
  await client.sessions.end(session.id)
})

test('two sessions at the same time do not mix', async () => {
  const { client } = server
  const sessions = await Promise.all([
    client.sessions.create({ agent: 'zebra' }),
    client.sessions.create({ agent: 'zebra' }),
  ])
  const answers = await Promise.all(
    sessions.map(({ id }, index) => {
      const prompt = scripted(bash(`echo secret-${index} > own.txt; ls /workspace; id -u`), {
        text: `answer ${index}`,
      })
      return client.sessions.send(id, prompt).text()
    }),
  )
  expect(answers).toEqual(['answer 0', 'answer 1'])
  for (const [index, { id }] of sessions.entries()) {
    expect(await client.files.readText(id, 'own.txt')).toBe(`secret-${index}\n`)
    const { messages } = await client.sessions.messages(id)
    expect(JSON.stringify(messages)).not.toContain(`secret-${1 - index}`)
  }
  await Promise.all(sessions.map(({ id }) => client.sessions.end(id)))
})

describe('one open query', () => {
  test('serves later turns without starting a process', async () => {
    const { client } = server
    const session = await client.sessions.create({ agent: 'zebra' })
    const claudes = async () =>
      (await server.listSandboxProcesses())
        .filter(({ command }) => command.includes('/opt/ash/claude'))
        .map(({ pid }) => pid)
    await client.sessions.send(session.id, scripted({ text: 'one' })).text()
    const before = await claudes()
    await client.sessions.send(session.id, scripted({ text: 'two' })).text()
    expect(before).toHaveLength(1)
    expect(await claudes()).toEqual(before)
    await client.sessions.end(session.id)
  })

  test('takes another model live, and says when an option made it open anew', async () => {
    const { client, model } = server
    const session = await client.sessions.create({ agent: 'zebra', model: 'model-of-session' })
    const modelUsed = (prompt: string) =>
      model.requests.findLast((request) => request.prompt === prompt)?.model
    const first = scripted({ text: 'one' })
    expect((await collect(client.sessions.send(session.id, first))).at(-1)).not.toHaveProperty('reopened')
    expect(modelUsed(first)).toBe('model-of-session')
    const second = scripted({ text: 'two' })
    const end = (await collect(client.sessions.send(session.id, second, { model: 'model-of-message' }))).at(
      -1,
    )
    expect(end).not.toHaveProperty('reopened')
    expect(modelUsed(second)).toBe('model-of-message')
    const third = scripted({ text: 'three, after {{prompts}}' })
    const reopened = (await collect(client.sessions.send(session.id, third, { maxTurns: 3 }))).at(-1)
    expect(reopened).toMatchObject({ type: 'done', reopened: ['maxTurns'] })
    expect(modelUsed(third)).toBe('model-of-session')
    await client.sessions.end(session.id)
  })
})

test('a session that is busy refuses a second message and can be interrupted', async () => {
  const { client } = server
  const session = await client.sessions.create({ agent: 'zebra' })
  const turn = client.sessions.send(
    session.id,
    scripted(bash('timeout 30 tail -f /dev/null'), { text: 'never' }),
  )
  const events = turn[Symbol.asyncIterator]()
  for (let event = await events.next(); !event.done; event = await events.next()) {
    if (event.value.type === 'message' && event.value.message.type === 'assistant') break
  }
  await expect(client.sessions.send(session.id, 'me too').text()).rejects.toMatchObject({
    code: 'turn_in_progress',
  })
  await client.sessions.interrupt(session.id)
  expect((await turn.result()).stopReason).toBe('interrupted')
  await expect(client.sessions.interrupt(session.id)).rejects.toMatchObject({ code: 'no_turn' })
  expect(await client.sessions.send(session.id, scripted({ text: 'still here' })).text()).toBe('still here')
  await client.sessions.end(session.id)
})

test('nothing is left when every session has ended', async () => {
  await eventually(server.sandboxProcesses, (count) => count === 0)
  expect(await readdir(join(server.dataDir, 'sandboxes'))).toEqual([])
  expect((await server.client.health()).sandboxes.live).toBe(0)
})
