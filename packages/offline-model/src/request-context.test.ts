import { expect, test } from 'vitest'
import type { RequestMessage } from './messages-request.ts'
import { describeRequest } from './request-context.ts'
import { afterTool, messagesBody } from './testing/messages-client.ts'

const describeMessages = (messages: RequestMessage[]) => describeRequest(messagesBody(messages), {})
const texts = (...all: string[]) => all.map((text) => ({ type: 'text', text }))

test('the prompt is what was typed, not what the CLI adds around it', () => {
  const context = describeMessages([
    { role: 'user', content: texts('<system-reminder>\nbe kind\n</system-reminder>\n', 'first\nline two') },
    { role: 'system', content: '# Environment' },
    { role: 'assistant', content: 'ok' },
    {
      role: 'user',
      content: texts(
        '[Request interrupted by user]',
        '<command-name>/cost</command-name>',
        '<local-command-stdout>$0</local-command-stdout>',
        'second<system-reminder>x</system-reminder>',
        '<system-reminder>y</system-reminder>',
      ),
    },
  ])
  expect(context).toMatchObject({
    prompt: 'second',
    prompts: ['first\nline two', 'second'],
    turn: 1,
    step: 0,
  })
})

test('steps and tool results are those since the prompt', () => {
  const context = describeMessages([
    ...afterTool('old', 'old result'),
    { role: 'assistant', content: 'done' },
    ...afterTool('new', 'new result<system-reminder>z</system-reminder>', true),
  ])
  expect(context).toMatchObject({ prompt: 'new', turn: 1, step: 1, toolResult: 'new result' })
  expect(context.toolResults).toEqual([{ id: 'toolu_1', isError: true, text: 'new result' }])
})

test('a reply that the client split into messages is one step', () => {
  const context = describeMessages([
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: 'part one' },
    { role: 'system', content: 'a note' },
    { role: 'assistant', content: 'part two' },
    { role: 'user', content: 'Continue from where you left off.' },
  ])
  expect(context.step).toBe(1)
})

test('tools, system text and session are read, and a request without tools is a side call', () => {
  const system = [
    { type: 'text', text: 'You are' },
    { type: 'text', text: 'a test' },
  ]
  const headers = { 'x-claude-code-session-id': 's1' }
  const context = describeRequest(messagesBody('hi', { system }), headers)
  expect(context).toMatchObject({ system: 'You are\na test', tools: ['Bash'], aux: false, sessionId: 's1' })
  expect(describeRequest(messagesBody('hi', { tools: [] }), {})).toMatchObject({ aux: true, sessionId: '' })
})

test('text made to be slow to read is read at once', () => {
  const started = Date.now()
  describeMessages([{ role: 'user', content: '<system-reminder>'.repeat(100_000) }])
  describeMessages([{ role: 'user', content: ' '.repeat(1_000_000) }])
  expect(Date.now() - started).toBeLessThan(1000)
})
