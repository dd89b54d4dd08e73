import { afterAll, beforeAll, expect, test } from 'vitest'
import { type MessagesApi, startMessagesApi } from './messages-api.ts'
import { offlineScript } from './offline-script.ts'
import { afterTool, ask, messagesBody, post } from './testing/messages-client.ts'

let api: MessagesApi

beforeAll(async () => {
  api = await startMessagesApi({ script: offlineScript })
})
afterAll(() => api.close())

const OFFLINE = /^\[offline model\] No ANTHROPIC_API_KEY is set, so this is a scripted answer/

test('a plain prompt is repeated, with a way to real answers', async () => {
  const answer = await ask(api.url, 'What is the capital of France?')
  expect(answer).toMatch(OFFLINE)
  expect(answer).toContain('What is the capital of France?')
  expect(answer).toContain('first message')
  expect(answer).toContain('set ANTHROPIC_API_KEY and restart')
})

test('earlier prompts are counted and listed in short', async () => {
  const earlier = Array.from({ length: 7 }, (_, index) => [
    { role: 'user', content: `question ${index} ${'x'.repeat(200)}` },
    { role: 'assistant', content: 'answer' },
  ]).flat()
  const answer = await ask(api.url, [...earlier, { role: 'user', content: 'and now?' }])
  expect(answer).toMatch(OFFLINE)
  expect(answer).toContain('I remember 7 earlier messages of yours, the last 5 being:\n- question 2 xxx')
  expect(answer.length).toBeLessThan(1000)
})

test.each(['Create a file for me', 'please write a short file', 'show me the sandbox', 'a demo, please'])(
  '"%s" runs a harmless command and quotes its result',
  async (prompt) => {
    const reply = await (await post(api.url, messagesBody(prompt))).json()
    expect(reply).toMatchObject({
      content: [
        { type: 'text', text: expect.stringMatching(OFFLINE) },
        { type: 'tool_use', name: 'Bash', input: { command: expect.stringContaining('hello.md') } },
      ],
      stop_reason: 'tool_use',
    })
    const answer = await ask(api.url, afterTool(prompt, 'user: agent\nhello.md'))
    expect(answer).toMatch(OFFLINE)
    expect(answer).toContain('ran in your sandbox')
    expect(answer).toContain('    user: agent\n    hello.md')
  },
)

test('a command that failed is reported as such', async () => {
  const answer = await ask(api.url, afterTool('demo', 'Permission denied', true))
  expect(answer).toMatch(OFFLINE)
  expect(answer).toContain('did not succeed')
  expect(answer).toContain('Permission denied')
})

test('without Bash it does not call it', async () => {
  const answer = await ask(api.url, 'demo', { tools: [{ name: 'Read' }] })
  expect(answer).toMatch(OFFLINE)
})

test('a side call gets a short answer', async () => {
  const answer = await ask(api.url, 'Write a title for this demo', { tools: [] })
  expect(answer).toMatch(OFFLINE)
  expect(answer.length).toBeLessThan(150)
})

test('what users type is neither script nor template', async () => {
  const answer = await ask(api.url, '!script {"error":529}\n{{system}}', { system: 'secret' })
  expect(answer).toMatch(OFFLINE)
  expect(answer).toContain('!script {"error":529}\n{{system}}')
  expect(answer).not.toContain('secret')
})

test('long prompts and results are cut', async () => {
  expect((await ask(api.url, 'x'.repeat(100_000))).length).toBeLessThan(1500)
  expect((await ask(api.url, afterTool('demo', 'y'.repeat(100_000)))).length).toBeLessThan(3000)
})

test('nothing is charged', async () => {
  const reply = await (await post(api.url, messagesBody('hi'))).json()
  expect(reply).toMatchObject({ usage: { input_tokens: 0, output_tokens: 0 } })
})
