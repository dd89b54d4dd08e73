import { spawn } from 'node:child_process'
import type { ServerResponse } from 'node:http'
import { afterEach, describe, expect, test } from 'vitest'
import { questionsOf, toAnswer } from './questions.ts'
import {
  type Api,
  BIN,
  DONE,
  errorBody,
  runCli,
  SESSION,
  sendJson,
  startApi,
  TURN,
} from './testing/run-cli.ts'

const PATH = `/api/sessions/${SESSION.id}`
const EVIL = '\x1b]0;owned\x07\u202e'
const REQUEST = {
  requestId: 'r1',
  turnId: 't1',
  kind: 'permission',
  tool: `Bash${EVIL}`,
  input: { command: `rm -r ${EVIL}` },
  status: 'pending',
  createdAt: '2026-01-01T00:00:00.000Z',
  expiresAt: '2026-01-01T00:10:00.000Z',
}
const QUESTION = {
  ...REQUEST,
  kind: 'question',
  tool: 'AskUserQuestion',
  input: {
    questions: [
      { question: 'Which colour?', options: [{ label: 'Red', description: 'warm' }, { label: 'Blue' }] },
      { question: 'Which sizes?', options: [{ label: 'S' }, { label: 'L' }], multiSelect: true },
    ],
  },
}

let api: Api | undefined
afterEach(() => api?.close())
const answers = () =>
  api?.requests.filter(({ url }) => url.endsWith('/permissions/r1')).map(({ json }) => json)

/** A server whose turn asks, and goes on when it is answered here or `settled` elsewhere. */
async function serve(request: object, settled?: Promise<unknown>): Promise<Record<string, string>> {
  let stream: ServerResponse | undefined
  let id = 0
  const write = ([event, data]: [string, unknown]) =>
    stream?.write(`id: ${++id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
  const resolve = (status: string) => {
    const permission = { requestId: 'r1', turnId: 't1', status }
    for (const event of [['permission_request', permission], DONE] as [string, unknown][]) write(event)
    return permission
  }
  api = await startApi({
    'POST /api/sessions': (response) => sendJson(response, 201, { session: SESSION }),
    [`DELETE ${PATH}`]: (response) => sendJson(response, 200, { session: SESSION }),
    [`GET ${PATH}/permissions`]: (response) => sendJson(response, 200, { permissions: [request] }),
    [`POST ${PATH}/messages`]: (response) => {
      stream = response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const event of [TURN, ['permission_request', request]] as [string, unknown][]) write(event)
      void settled?.then(() => resolve('expired'))
    },
    [`POST ${PATH}/permissions/r1`]: (response, { json }) => {
      const { behavior } = json as { behavior: string }
      sendJson(response, 200, { permission: resolve(behavior === 'allow' ? 'allowed' : 'denied') })
    },
  })
  return { ASH_SERVER_URL: api.url }
}

type Reply = [cue: string, reply: string | (() => void)]
const chat = (env: Record<string, string>, ...replies: Reply[]) =>
  inTerminal('chat helper go --keep', env, replies)

/** A command in a terminal; each reply is typed, or done, when the terminal shows its cue. */
async function inTerminal(args: string, env: Record<string, string>, replies: Reply[]) {
  const command = `${process.execPath} --conditions=development ${BIN} ${args}`
  const child = spawn('script', ['-qec', command, '/dev/null'], {
    env: { PATH: process.env.PATH, ASH_DATA_DIR: '/nonexistent/ash', TERM: 'dumb', NO_COLOR: '1', ...env },
  })
  let shown = ''
  let from = 0
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    shown += text
    const [cue, reply] = replies[0] ?? []
    const at = cue === undefined ? -1 : shown.indexOf(cue, from)
    if (at < 0) return
    from = at + (cue?.length ?? 0)
    replies.shift()
    if (typeof reply === 'string') child.stdin.write(`${reply}\r`)
    else reply?.()
  })
  const { promise, resolve, reject } = Promise.withResolvers<number | null>()
  child.once('error', reject).once('close', resolve)
  return { code: await promise, shown }
}

describe('chat in a terminal', () => {
  test.each([
    ['y', { behavior: 'allow' }],
    ['n', { behavior: 'deny' }],
    ['only in tmp', { behavior: 'deny', message: 'only in tmp' }],
  ])('shows what is asked, harmless, and takes %j as the answer', async (reply, answer) => {
    const { code, shown } = await chat(await serve(REQUEST), ['Allow?', reply])
    expect(code).toBe(0)
    expect(answers()).toEqual([answer])
    expect(shown).toContain('wants to use Bash\\x1b]0;owned\\x07\\u202e')
    expect(shown).toContain('rm -r ')
    for (const acting of ['owned\x07', '\u202e']) expect(shown).not.toContain(acting)
  })

  test('an empty line is no answer', async () => {
    const { code } = await chat(await serve(REQUEST), ['Allow?', ''], ['Allow?', 'yes'])
    expect([code, answers()]).toEqual([0, [{ behavior: 'allow' }]])
  })

  test('a conversation goes on after the answer, and Ctrl-D ends it', async () => {
    const replies: Reply[] = [
      ['> ', 'first'],
      ['Allow?', 'y'],
      ['> ', 'second'],
      ['Allow?', 'n'],
      ['> ', '\x04'],
    ]
    const { code } = await inTerminal('chat helper --keep', await serve(REQUEST), replies)
    expect(code).toBe(0)
    expect(answers()).toEqual([{ behavior: 'allow' }, { behavior: 'deny' }])
    const sent = api?.requests.filter(({ url }) => url.endsWith('/messages')).map(({ json }) => json)
    expect(sent).toMatchObject([{ content: 'first' }, { content: 'second' }])
  })

  test('questions show their options and take numbers or words', async () => {
    const { code, shown } = await chat(await serve(QUESTION), ['Answer', '2'], ['Answer', '1,2'])
    expect(code).toBe(0)
    expect(shown).toMatch(/Which colour\?\s+1\. Red {2}warm\s+2\. Blue/)
    const given = { 'Which colour?': 'Blue', 'Which sizes?': 'S, L' }
    expect(answers()).toEqual([{ behavior: 'allow', answers: given }])
  })

  test('what is settled elsewhere is asked no longer', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const { code, shown } = await chat(await serve(REQUEST, promise), ['Allow?', resolve])
    expect([code, answers()]).toEqual([0, []])
    expect(shown).toContain('no answer needed any more: expired')
  })
})

test('without a terminal nobody is asked; stderr says how to answer', async () => {
  const env = await serve(REQUEST, Promise.resolve())
  const result = await runCli(['session', 'send', SESSION.id, 'go'], { env, input: 'y\n' })
  expect(result).toMatchObject({ code: 0, stdout: '' })
  expect(result.stderr).toContain(`ash session allow ${SESSION.id} r1`)
  expect(answers()).toEqual([])
})

describe('session', () => {
  test('permissions lists what waits, harmless', async () => {
    const env = await serve(REQUEST)
    const { stdout } = await runCli(['session', 'permissions', SESSION.id], { env })
    expect(stdout).toMatch(/^REQUEST +KIND +TOOL +EXPIRES +INPUT\nr1 +permission +Bash\\x1b/)
    const json = await runCli(['session', 'permissions', SESSION.id, '--json'], { env })
    expect(JSON.parse(json.stdout)).toEqual({ permissions: [REQUEST] })
  })

  test.each([
    [['allow'], { behavior: 'allow' }],
    [['allow', '--input', '{"command":"ls"}'], { behavior: 'allow', updatedInput: { command: 'ls' } }],
    [['deny'], { behavior: 'deny' }],
    [['deny', '--message', 'why', '--interrupt'], { behavior: 'deny', message: 'why', interrupt: true }],
  ])('%j sends %j', async ([verb = '', ...options], answer) => {
    const env = await serve(REQUEST)
    const result = await runCli(['session', verb, SESSION.id, 'r1', ...options, '--json'], { env })
    expect(result.code).toBe(0)
    expect(JSON.parse(result.stdout)).toMatchObject({ permission: { requestId: 'r1' } })
    expect(answers()).toEqual([answer])
  })

  test('allow names the questions that its answers are for, and wants one for each', async () => {
    const env = await serve(QUESTION)
    const args = ['session', 'allow', SESSION.id, 'r1', '--answer', '1']
    expect(await runCli(args, { env })).toMatchObject({ code: 2 })
    expect(await runCli([...args, '--answer', 'any'], { env })).toMatchObject({ code: 0 })
    const given = { 'Which colour?': 'Red', 'Which sizes?': 'any' }
    expect(answers()).toEqual([{ behavior: 'allow', answers: given }])
  })

  test('an input that is no object is wrong usage; an unknown request is 5', async () => {
    const env = await serve(REQUEST)
    const bad = await runCli(['session', 'allow', SESSION.id, 'r1', '--input', '[1]'], { env })
    expect(bad).toMatchObject({ code: 2, stderr: expect.stringContaining('JSON object') })
    await api?.close()
    const body = errorBody('permission_not_found', 404, 'No request r2')
    api = await startApi({ [`POST ${PATH}/permissions/r2`]: (response) => sendJson(response, 404, body) })
    const unknown = await runCli(['session', 'deny', SESSION.id, 'r2', '--url', api.url])
    expect(unknown).toMatchObject({ code: 5, stderr: expect.stringContaining('ash session permissions') })
  })
})

describe('questions', () => {
  test.each([
    ['1', 'Red'],
    ['3', '3'],
    ['0', '0'],
    ['1,2', '1,2'],
    ['Red please', 'Red please'],
  ])('%j means %j where one option can be chosen', (text, answer) => {
    const [question] = questionsOf(QUESTION.input)
    expect(question && toAnswer(question, text)).toBe(answer)
  })

  test('a hostile input has no questions, and does not throw', () => {
    for (const questions of [undefined, 'x', [null, 1, 'x', {}, { question: 1 }], { question: 'x' }]) {
      expect(questionsOf({ questions })).toEqual([])
    }
    expect(questionsOf({ questions: [{ question: 'q', options: [null, { label: 1 }, 7] }] })).toEqual([
      { question: 'q', options: [], multiSelect: false },
    ])
  })
})
