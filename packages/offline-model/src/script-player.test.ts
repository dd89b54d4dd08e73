import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type MessagesApi, startMessagesApi } from './messages-api.ts'
import type { RequestMessage } from './messages-request.ts'
import { afterTool, ask, messagesBody, post } from './testing/messages-client.ts'

let api: MessagesApi

beforeAll(async () => {
  api = await startMessagesApi()
})
afterEach(() => api.reset())
afterAll(() => api.close())

const inline = (steps: unknown) => `please\n!script ${JSON.stringify(steps)}`

test('without a script the prompt is echoed', async () => {
  expect(await ask(api.url, 'hi')).toBe('echo: hi')
})

test('a function decides, and what it leaves open goes on to the inline script and the echo', async () => {
  api.setScript(({ prompt }) => (prompt === 'mine' ? { text: 'decided' } : undefined))
  expect(await ask(api.url, 'mine')).toBe('decided')
  expect(await ask(api.url, inline({ text: 'inline' }))).toBe('inline')
  expect(await ask(api.url, 'other')).toBe('echo: other')
})

test('a list is played one step per request, and side calls use none up', async () => {
  api.setScript([{ text: 'a' }, { text: 'b', repeat: 2 }])
  expect(await ask(api.url, 'x')).toBe('a')
  expect(await ask(api.url, 'x', { tools: [] })).toBe('echo: x')
  expect(await ask(api.url, 'x')).toBe('b')
  expect(await ask(api.url, 'x')).toBe('b')
  expect(await ask(api.url, 'x')).toBe('echo: x')
})

test('the first rule that applies replies, as often as it may', async () => {
  const rules = [
    { when: { prompt: 'weather' }, reply: { text: 'sunny' }, times: 1 },
    { when: { prompt: '/^WEA/i', turn: 0 }, reply: { text: 'rainy' } },
    { when: { prompt: /tide/g }, reply: { text: 'high' } },
    { when: { aux: true }, reply: { text: 'a title' } },
  ]
  api.setScript({ rules, steps: [{ text: 'step' }], otherwise: { text: 'otherwise' } })
  expect(await ask(api.url, 'the weather')).toBe('sunny')
  expect(await ask(api.url, 'the weather')).toBe('step')
  expect(await ask(api.url, 'weather')).toBe('rainy')
  expect(await ask(api.url, 'tide')).toBe('high')
  expect(await ask(api.url, 'tide')).toBe('high')
  expect(await ask(api.url, 'x', { tools: [] })).toBe('a title')
  expect(await ask(api.url, 'x')).toBe('otherwise')
})

test('a list in a rule follows the turn, and fill-ins are filled in', async () => {
  const reply = [
    { tool: 'Bash', input: { command: 'echo {{prompt}}' } },
    { text: '{{step}}: {{toolResult}}' },
  ]
  api.setScript({ rules: [{ when: { prompt: 'run' }, reply }] })
  const first = await (await post(api.url, messagesBody('run it'))).json()
  expect(first).toMatchObject({ content: [{ input: { command: 'echo run it' } }] })
  expect(await ask(api.url, afterTool('run it', 'done'))).toBe('1: done')
})

test('what is filled in is not filled in again', async () => {
  api.setScript([{ text: '{{prompt}} {{model}} {{turn}} {{unknown}}' }])
  expect(await ask(api.url, '{{model}}')).toBe('{{model}} claude-test 0 {{unknown}}')
})

test('the delay of a script holds for steps without one', async () => {
  api.setScript({ delayMs: 50 })
  const started = Date.now()
  await ask(api.url, 'hi')
  expect(Date.now() - started).toBeGreaterThanOrEqual(49)
})

test('an inline script plays its own turn, before rules and steps', async () => {
  api.setScript({ rules: [{ reply: { text: 'rule' } }] })
  const prompt = inline([{ tool: 'Bash' }, { text: 'got {{toolResult}}' }])
  expect(await ask(api.url, prompt)).toBe('')
  expect(await ask(api.url, afterTool(prompt, 'x'))).toBe('got x')
  expect(await ask(api.url, 'no script here')).toBe('rule')
})

test('failing steps of an inline script are passed one by one, and its last step repeats', async () => {
  const prompt = inline([{ error: 529, repeat: 2 }, { disconnect: 'before' }, { text: 'ok' }])
  expect(await ask(api.url, prompt)).toContain('error 529')
  expect(await ask(api.url, prompt)).toContain('error 529')
  await expect(ask(api.url, prompt)).rejects.toThrow('fetch failed')
  expect(await ask(api.url, prompt)).toBe('ok')
  expect(await ask(api.url, prompt)).toBe('ok')
})

test('failing steps are passed in the middle of a turn, each session for itself', async () => {
  const prompt = inline([{ tool: 'Bash' }, { error: 500 }, { tool: 'Bash' }, { error: 529 }, { text: 'end' }])
  const first = afterTool(prompt, 'x')
  const second = [...first, ...afterTool('', 'y').slice(1)]
  for (const session of ['one', 'two']) {
    const init = { headers: { 'x-claude-code-session-id': session } }
    const status = async (messages: RequestMessage[]) =>
      (await post(api.url, messagesBody(messages), init)).status
    expect([await status(first), await status(first)]).toEqual([500, 200])
    expect([await status(second), await status(second)]).toEqual([529, 200])
  }
})

test('half a reply that the client kept from a failing step counts once', async () => {
  const prompt = inline([{ text: 'half', streamError: true }, { text: 'second' }, { text: 'third' }])
  await post(api.url, messagesBody(prompt, { stream: true })).then((response) => response.text())
  const kept = [
    { role: 'user', content: prompt },
    { role: 'assistant', content: 'half' },
    { role: 'user', content: 'Your response above was cut off mid-stream. Resume directly.' },
  ]
  expect(await ask(api.url, kept)).toBe('second')
  const further = [
    { role: 'assistant', content: 'second' },
    { role: 'user', content: 'Stop hook feedback: go on' },
  ]
  expect(await ask(api.url, [...kept, ...further])).toBe('third')
})

test('a turn after a failed one starts its own script at the beginning', async () => {
  const failing = inline({ error: 500 })
  await ask(api.url, failing)
  const content = [failing, inline([{ text: 'first' }, { text: 'no' }])].map((text) => ({
    type: 'text',
    text,
  }))
  expect(await ask(api.url, [{ role: 'user', content }])).toBe('first')
})

test('an inline script may run over lines, and text may follow one on a single line', async () => {
  expect(await ask(api.url, '!script [\n{"text":\n"over lines"}\n]')).toBe('over lines')
  expect(await ask(api.url, '!script {"text":"one line"}\nand more')).toBe('one line')
})

test.each([
  ['no JSON', '!script {"text"'],
  ['no object', '!script 5'],
  ['an empty list', '!script []'],
  ['an unknown field', '!script {"txet":"x"}'],
  ['a wrong value', '!script {"disconnect":"after"}'],
  ['a status that is no error', '!script {"error":204}'],
])('an inline script with %s is refused with 400', async (_name, prompt) => {
  expect(await ask(api.url, prompt)).toMatch(/^error 400: Unreadable !script line/)
})
