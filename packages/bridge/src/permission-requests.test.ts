import { MAX_TOOL_INPUT_CHARS } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { PermissionRequests } from './permission-requests.ts'

function start() {
  const sent: { ev: string; requestId: string }[] = []
  const requests = new PermissionRequests(async (event) => void sent.push(event))
  const abort = new AbortController()
  const ask = (input: Record<string, unknown> = { command: 'ls' }, tool = 'Bash') =>
    requests.ask(tool, input, { signal: abort.signal, toolUseID: 't', requestId: 'sdk' })
  return { sent, requests, abort, ask }
}
const DENIED = { behavior: 'deny', message: expect.any(String) }

test('each request gets its own decision, in whatever order they come', async () => {
  const { sent, requests, ask } = start()
  const first = ask()
  const second = ask({ questions: [] }, 'AskUserQuestion')
  expect(sent).toMatchObject([{ kind: 'permission' }, { kind: 'question', tool: 'AskUserQuestion' }])
  const [one, two] = sent.map(({ requestId }) => requestId)
  expect(requests.answer(two ?? '', { behavior: 'allow', updatedInput: { answers: {} } })).toBe(true)
  expect(requests.answer(one ?? '', { behavior: 'deny', message: 'no' })).toBe(true)
  expect(await first).toEqual({ behavior: 'deny', message: 'no' })
  expect(await second).toEqual({ behavior: 'allow', updatedInput: { answers: {} } })
  expect(requests.answer(one ?? '', { behavior: 'allow' })).toBe(false)
})

test('an answer to nothing is not taken', () => {
  expect(start().requests.answer('nobody', { behavior: 'allow' })).toBe(false)
})

test('an interrupt withdraws the request and refuses the tool', async () => {
  const { sent, abort, ask, requests } = start()
  const asked = ask()
  abort.abort()
  expect(await asked).toEqual(DENIED)
  const [request] = sent
  expect(sent.at(-1)).toEqual({ ev: 'permission_withdrawn', requestId: request?.requestId })
  expect(requests.answer(request?.requestId ?? '', { behavior: 'allow' })).toBe(false)
})

test('an answer that came before the interrupt stands', async () => {
  const { sent, abort, ask, requests } = start()
  const asked = ask()
  requests.answer(sent[0]?.requestId ?? '', { behavior: 'allow' })
  abort.abort()
  expect(await asked).toEqual({ behavior: 'allow' })
  expect(sent).toHaveLength(1)
})

test('after its turn nothing waits and nothing is asked', async () => {
  const { sent, ask, requests } = start()
  const asked = ask()
  requests.close()
  expect(await asked).toEqual(DENIED)
  expect(await ask()).toEqual(DENIED)
  expect(sent).toHaveLength(1)
})

test('what is too large to ask about is refused and says so', async () => {
  const { sent, ask } = start()
  const text = 'x'.repeat(MAX_TOOL_INPUT_CHARS)
  expect(await ask({ text })).toEqual({ behavior: 'deny', message: expect.stringContaining('smaller parts') })
  expect(sent).toEqual([])
})
