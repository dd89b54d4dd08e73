import { afterEach, describe, expect, test } from 'vitest'
import {
  type Api,
  assistant,
  DONE,
  delta,
  errorBody,
  runCli,
  SESSION,
  sendEvents,
  sendJson,
  startApi,
  TURN,
} from './testing/run-cli.ts'

const PATH = `/api/sessions/${SESSION.id}`
let api: Api | undefined
afterEach(() => api?.close())

async function serve(routes: Parameters<typeof startApi>[0]): Promise<Record<string, string>> {
  api = await startApi({
    'POST /api/sessions': (response) => sendJson(response, 201, { session: SESSION }),
    [`GET ${PATH}`]: (response) => sendJson(response, 200, { session: SESSION }),
    [`DELETE ${PATH}`]: (response) => sendJson(response, 200, { session: { ...SESSION, status: 'ended' } }),
    ...routes,
  })
  return { ASH_SERVER_URL: api.url }
}

const calls = () => api?.requests.map(({ method, url }) => `${method} ${url.replace(PATH, '')}`)
const answer = (...events: [string, unknown][]) => ({
  [`POST ${PATH}/messages`]: (response: Parameters<typeof sendEvents>[0]) =>
    sendEvents(response, [TURN, ...events]),
})

const EVIL = '\x1b]0;owned\x07\x9b31m\x1b[2J'
/** Control characters other than line breaks. */
const CONTROL = /(?!\n)\p{Cc}/u
const SHOWN = '\\x1b]0;owned\\x07\\x9b31m\\x1b[2J'

describe('session send', () => {
  test('prints the text blocks, harmless, and the tools on stderr', async () => {
    const tool = { type: 'tool_use', name: 'Bash', input: { command: `ls ${EVIL}` } }
    const env = await serve(
      answer(
        assistant({ type: 'text', text: `Hello ${EVIL}` }),
        assistant(tool),
        assistant({ type: 'text', text: 'Bye\n' }),
        DONE,
      ),
    )
    const result = await runCli(['session', 'send', SESSION.id, 'hi'], { env })
    expect(result).toMatchObject({ code: 0, stdout: `Hello ${SHOWN}\nBye\n` })
    expect(result.stderr).toContain('⚙ Bash {"command":"ls ')
    expect(result.stderr).not.toMatch(CONTROL)
  })

  test('--json prints every event, one a line, and nothing else', async () => {
    const env = await serve(answer(assistant({ type: 'text', text: EVIL }), DONE))
    const result = await runCli(['session', 'send', SESSION.id, 'hi', '--json'], { env })
    expect(result).toMatchObject({ code: 0, stderr: '' })
    const events = result.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(events.map(({ type, id }) => `${type} ${id}`)).toEqual(['turn 1', 'message 2', 'done 3'])
    expect(events[1].message.message.content[0].text).toBe(EVIL)
    expect(result.stdout).not.toMatch(CONTROL)
  })

  test('takes the message from stdin with "-"', async () => {
    const env = await serve(answer(DONE))
    await runCli(['session', 'send', SESSION.id, '-'], { env, input: 'line 1\nline 2\n' })
    expect(api?.requests[0]?.json).toEqual({ content: 'line 1\nline 2\n' })
    expect(await runCli(['session', 'send', SESSION.id, '-'], { env })).toMatchObject({ code: 2 })
  })

  test('fails with what ended the turn', async () => {
    const error = { turnId: 't1', code: 'model_api_error', error: 'API says 529', retryable: true }
    const env = await serve(answer(assistant({ type: 'text', text: 'Part' }), ['error', error]))
    const result = await runCli(['session', 'send', SESSION.id, 'hi'], { env })
    expect(result).toMatchObject({ code: 1, stdout: 'Part\n' })
    expect(result.stderr).toMatch(/^error: API says 529\n {2}next: Check the server's ANTHROPIC_API_KEY/)
  })

  test('Ctrl-C interrupts the agent and ends with 130', async () => {
    const env = await serve({
      [`POST ${PATH}/messages`]: (response) => {
        sendEvents(response, [TURN, assistant({ type: 'text', text: 'Working' })])
        finish = () => response.end(`id: 3\nevent: done\ndata: ${JSON.stringify(DONE[1])}\n\n`)
      },
      [`POST ${PATH}/interrupt`]: (response) => {
        sendJson(response, 200, { ok: true })
        finish()
      },
    })
    let finish = () => {}
    let isPressed = false
    const onOutput = (stdout: string, kill: (signal: NodeJS.Signals) => void) => {
      if (!isPressed && stdout.includes('Working')) kill('SIGINT')
      isPressed = true
    }
    const result = await runCli(['session', 'send', SESSION.id, 'hi'], { env, onOutput })
    expect(result).toMatchObject({ code: 130, stdout: 'Working\n' })
    expect(calls()).toEqual(['POST /messages', 'POST /interrupt'])
  })
})

describe('chat', () => {
  test('creates a session, streams each token once, and ends the session', async () => {
    const whole = { type: 'text', text: 'Hello there' }
    const env = await serve(answer(delta('Hel'), delta('lo th'), assistant(whole), delta('Bye'), DONE))
    const result = await runCli(['chat', 'helper', 'hi'], { env })
    expect(result).toMatchObject({ code: 0, stdout: 'Hello there\nBye\n' })
    expect(calls()).toEqual(['POST /api/sessions', 'POST /messages', 'DELETE '])
    expect(api?.requests[1]?.json).toEqual({ content: 'hi', includePartialMessages: true })
  })

  test('without a message takes one a line, survives a failed turn, and ends with the input', async () => {
    let count = 0
    const error = { turnId: 't1', code: 'agent_crashed', error: 'crashed', retryable: true }
    const env = await serve({
      [`POST ${PATH}/messages`]: (response, { json }) => {
        const { content: text } = json as { content: string }
        count += 1
        sendEvents(
          response,
          count === 1 ? [TURN, ['error', error]] : [TURN, assistant({ type: 'text', text }), DONE],
        )
      },
    })
    const result = await runCli(['chat', 'helper', '--keep'], { env, input: 'one\n\ntwo\n' })
    expect(result).toMatchObject({ code: 0, stdout: 'two\n' })
    expect(result.stderr).toContain('error: crashed')
    expect(result.stderr).toContain(`ash chat helper --session ${SESSION.id}`)
    expect(calls()).toEqual(['POST /api/sessions', 'POST /messages', 'POST /messages'])
  })

  test('--session continues one and leaves it open; --json tells which', async () => {
    const env = await serve(answer(DONE))
    const result = await runCli(['chat', 'helper', 'hi', '--session', SESSION.id, '--json'], { env })
    expect(result.code).toBe(0)
    const types = result.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).type)
    expect(types).toEqual(['session', 'turn', 'done'])
    expect(calls()).toEqual(['GET ', 'POST /messages'])
    const other = await runCli(['chat', 'other', 'hi', '--session', SESSION.id], { env })
    expect(other).toMatchObject({ code: 2 })
  })

  test('an unknown agent is 5', async () => {
    const body = errorBody('agent_not_found', 404, 'No agent "nobody"')
    const env = await serve({ 'POST /api/sessions': (response) => sendJson(response, 404, body) })
    expect(await runCli(['chat', 'nobody', 'hi'], { env })).toMatchObject({ code: 5, stdout: '' })
  })
})
