import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { sessionDirs } from '@ash-ai/sandbox'
import type { SessionEvent } from '@ash-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { collect, deployTestAgent } from '../support/conversation.ts'
import { eventually } from '../support/sandbox-processes.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { expectWhole } from './support/log-invariants.ts'
import { watchPeakMemory } from './support/process-memory.ts'
import { sqliteLog } from './support/stored-log.ts'
import { lockDatabase } from './support/write-lock.ts'

// What a sandbox says is hostile input, and all of it comes through the bridge.

const MB = 1024 * 1024
const BRIDGE = join(import.meta.dirname, 'support/hostile-bridge.mjs')

type Step =
  | { text: string }
  | { bytes: string }
  | { repeat: string; times: number }
  | { waitFor: string }
  | { exit: true }

const line = (text: string) => ({ text: `${text}\n` })
const bytes = (...parts: (string | number)[]): Step => ({
  bytes: Buffer.concat(
    parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from([part]))),
  ).toString('base64'),
})
/** In one write, so that they arrive as one piece. */
const together = (...lines: { text: string }[]): Step => ({ text: lines.map(({ text }) => text).join('') })
const message = (data: string, id = '{{id}}') => line(`{"ev":"message","id":"${id}","data":${data}}`)
const done = (data = '{"stopReason":"end_turn"}', id = '{{id}}') =>
  line(`{"ev":"done","id":"${id}","data":${data}}`)
const nested = (depth: number): Step[] => [
  { repeat: '['.repeat(1000), times: depth / 1000 },
  { repeat: ']'.repeat(1000), times: depth / 1000 },
]

let server: TestServer
let neighbour: string
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_BRIDGE_ENTRY: BRIDGE } })
  await deployTestAgent(server.client)
  neighbour = await newSession()
})
afterAll(() => server.close())

const newSession = async () => (await server.client.sessions.create({ agent: 'zebra' })).id
/** The events of a turn; checkpoints of the one before may be told of in between. */
const send = async (sessionId: string, ...steps: Step[]) =>
  (await collect(server.client.sessions.send(sessionId, JSON.stringify(steps)))).filter(
    ({ type }) => type !== 'checkpoint',
  )
const storedLog = (sessionId: string) => sqliteLog(server.dataDir)(sessionId)
const typesOf = (events: SessionEvent[]) => events.map(({ type }) => type)

/** What the processes of all sandboxes have written so far, to anything. */
async function bytesWrittenInside(): Promise<number> {
  const pids = (await server.listSandboxProcesses()).map(({ pid }) => pid)
  const counters = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/io`, 'utf8')))
  return counters.reduce((sum, text) => sum + Number(/^wchar: (\d+)$/m.exec(text)?.[1]), 0)
}

/** The neighbour still has its sandbox, the session goes on with its next message, and its log is in order. */
async function expectHarmless(sessionId: string): Promise<void> {
  expect(typesOf(await send(neighbour, message('{"type":"fine"}'), done()))).toEqual([
    'turn',
    'message',
    'done',
  ])
  expect(typesOf(await send(sessionId, message('{"type":"fine"}'), done()))).toEqual([
    'turn',
    'message',
    'done',
  ])
  expectWhole(await storedLog(sessionId))
  await server.client.sessions.end(sessionId)
}

describe('a bridge that breaks the protocol in the middle of a turn', () => {
  test.each<[string, ...Step[]]>([
    ['with a line that is no JSON', line('{"ev":"message"')],
    ['with a carriage return', bytes('{"ev":"message","id":"2","data":{"type":\r"x"}}\n')],
    ['with a NUL', bytes('{"ev":"message","id":"2","data":{"type":"x', 0, '"}}\n')],
    [
      'with bytes that are no UTF-8',
      bytes('{"ev":"message","id":"2","data":{"type":"x', 0xff, 0xfe, '"}}\n'),
    ],
    ['with half a surrogate pair in bytes', bytes('{"ev":"log","id":"2","x":"', 0xed, 0xa0, 0x80, '"}\n')],
    ['with a message that is a list', message('[{"type":"x"}]')],
    ['with a message that has no type', message('{"__proto__":{"type":"x"}}')],
    ['with two messages in one line', message('{"type":"x"}},{"type":"y"}')],
    ['with an event for a command that was never sent', message('{"type":"x"}', '99999')],
    ['with the end of a turn that was never begun', done(undefined, '99999')],
    ['with an id that is none', line('{"ev":"result","id":"../1","data":{}}')],
    ['with an id that is a number', line('{"ev":"result","id":1,"data":{}}')],
    ['with an end that does not say how', done('{"stopReason":{"toString":"x"}}')],
    ['with an event that does not exist', line('{"ev":"constructor","id":"{{id}}"}')],
    ['with a line that nests without end', { repeat: '[', times: 1000 }, ...nested(MB), line('')],
  ])('%s: one typed error, a session in error, and nobody else notices', async (_, ...steps) => {
    const id = await newSession()
    const events = await send(id, message('{"type":"before"}'), ...steps, message('{"type":"after"}'), done())
    expect(typesOf(events)).toEqual(['turn', 'message', 'error'])
    expect(events.at(-1)).toMatchObject({ code: 'bridge_protocol_error' })
    const failed = await eventually(
      () => server.client.sessions.get(id),
      ({ status }) => status !== 'active',
    )
    expect(failed).toMatchObject({ status: 'error', error: { code: 'bridge_protocol_error' } })
    await expectHarmless(id)
  })

  test('with a line of a gigabyte: the server’s memory hardly notices', async () => {
    const id = await newSession()
    const peakGrowth = await watchPeakMemory(server.pid())
    const events = await send(id, { repeat: 'x'.repeat(64 * 1024), times: 16 * 1024 })
    expect(events.at(-1)).toMatchObject({ type: 'error', code: 'bridge_protocol_error' })
    expect(await peakGrowth()).toBeLessThan(128 * MB)
    await expectHarmless(id)
  })
})

test('a bridge that floods previews while nothing can be stored is held back', async () => {
  const id = await newSession()
  const preview = `{"ev":"message","id":"{{id}}","data":{"type":"stream_event","x":"${'x'.repeat(64 * 1024)}"}}\n`
  const flood = send(
    id,
    { waitFor: 'go' },
    message('{"type":"x"}'),
    { repeat: preview, times: 3 * 1024 },
    done(),
  )
  await eventually(
    () => storedLog(id),
    (log) => log.at(-1)?.type === 'turn',
  )
  const peakGrowth = await watchPeakMemory(server.pid())
  const start = await bytesWrittenInside()
  const lock = await lockDatabase(server.dataDir)
  try {
    await writeFile(join(sessionDirs(server.dataDir, id).workspace, 'go'), '')
    const seen: number[] = []
    await eventually(
      async () => {
        seen.push((await bytesWrittenInside()) - start)
        await server.client.health()
        return seen.slice(-5)
      },
      ([first = 0, ...rest]) => first > MB && rest.length === 4 && rest.every((bytes) => bytes === first),
    )
    // Of 192 MB that wait to be sent.
    expect(await peakGrowth()).toBeLessThan(128 * MB)
  } finally {
    await lock.release()
  }
  const entries = (await flood).filter(({ id }) => /^\d+$/.test(id))
  expect(typesOf(entries)).toEqual(['turn', 'message', 'done'])
  await expectHarmless(id)
})

test('a bridge that dies in the middle of a line: its half is not in the log', async () => {
  const id = await newSession()
  const events = await send(
    id,
    { text: '{"ev":"message","id":"{{id}}","data":{"type":"half' },
    { exit: true },
  )
  expect(typesOf(events)).toEqual(['turn', 'error'])
  expect(events.at(-1)).toMatchObject({ code: 'sandbox_died' })
  await expectHarmless(id)
})

describe('a bridge that says too much', () => {
  test.each<[string, ...Step[]]>([
    ['after the end of its turn', together(done(), message('{"type":"late"}'))],
    ['by ending its turn twice', together(done(), done('{"stopReason":"twice"}'))],
    [
      'by failing a turn that it has ended',
      done(),
      line('{"ev":"error","id":"{{id}}","code":"x","error":"x"}'),
    ],
    ['about the turn before', message('{"type":"late"}', '{{before}}'), done()],
    ['by ending the turn before', done(undefined, '{{before}}'), done()],
  ])('%s is not heard', async (_, ...steps) => {
    const id = await newSession()
    await send(id, done())
    const events = await send(id, ...steps)
    expect(typesOf(events)).toEqual(['turn', 'done'])
    expect(events.at(-1)).toMatchObject({ stopReason: 'end_turn' })
    await expectHarmless(id)
    // Of the prompts, which say what is to be said, only the answers.
    const answers = (await storedLog(id)).filter(({ type }) => type === 'message' || type === 'done')
    expect(answers.map(({ data }) => JSON.parse(data).type ?? JSON.parse(data).stopReason)).toEqual([
      'end_turn',
      'end_turn',
      'fine',
      'end_turn',
    ])
  })

  test('in the code of an error gets one that is known', async () => {
    const id = await newSession()
    const [, error] = await send(
      id,
      line('{"ev":"error","id":"{{id}}","code":"unauthorized","error":"who are you"}'),
    )
    expect(error).toMatchObject({ type: 'error', code: 'agent_failed', error: 'who are you' })
    await expectHarmless(id)
  })

  test('by answering a message like a command fails the turn', async () => {
    const id = await newSession()
    const events = await send(id, line('{"ev":"result","id":"{{id}}","data":{}}'))
    expect(events.at(-1)).toMatchObject({ type: 'error', code: 'bridge_protocol_error' })
    await expectHarmless(id)
  })
})

describe('strange but valid JSON', () => {
  test.each([
    ['half a surrogate pair', '{"type":"x","text":"\\ud800"}'],
    ['an escaped NUL and line breaks', '{"type":"x","text":"\\u0000\\r\\n\\u2028"}'],
    ['keys that mean something elsewhere', '{"type":"x","__proto__":{"polluted":1},"constructor":null}'],
    ['the same key twice', '{"type":"x","a":1,"a":2}'],
    ['numbers that are none of JavaScript’s', '{"type":"x","a":1e999,"b":12345678901234567890}'],
  ])('reaches log and client byte for byte: %s', async (_, data) => {
    const id = await newSession()
    const events = await send(id, message(data), done())
    expect(typesOf(events)).toEqual(['turn', 'message', 'done'])
    expect(events[1]).toMatchObject({ message: JSON.parse(data) })
    expect((await storedLog(id)).find(({ type }) => type === 'message')?.data).toBe(data)
    await expectHarmless(id)
    expect({}).not.toHaveProperty('polluted')
  })

  test.each<[string, ...Step[]]>([
    [
      'a message',
      { text: '{"ev":"message","id":"{{id}}","data":{"type":"x","a":' },
      ...nested(MB),
      line('}}'),
      done(),
    ],
    [
      'what a turn used',
      { text: '{"ev":"done","id":"{{id}}","data":{"stopReason":"x","usage":' },
      ...nested(MB),
      line('}}'),
    ],
  ])('nested a million deep in %s ends the turn in order', async (_, ...steps) => {
    const id = await newSession()
    const { status } = await fetch(`${server.url}/api/sessions/${id}/messages`, {
      method: 'POST',
      headers: { authorization: `Bearer ${server.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ content: JSON.stringify(steps) }),
    }).then(async (reply) => ({ status: reply.status, text: await reply.text() }))
    expect(status).toBe(200)
    const ends = (await storedLog(id)).filter(({ type }) => type === 'done' || type === 'error')
    expect(ends).toHaveLength(1)
    await expectHarmless(id)
  })
})
