import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeEvent, encodeLine, encodeMessage } from './bridge-events.ts'
import { ProtocolError } from './line-splitter.ts'
import { MAX_TOOL_INPUT_CHARS } from './tool-input.ts'

const REQUEST = {
  ev: 'permission_request',
  id: '1',
  requestId: 'r1',
  kind: 'permission',
  tool: 'Bash',
  input: { command: 'ls' },
}
/** As text, since what nests deeply cannot be written by `JSON.stringify`. */
const nested = (depth: number) => `${'{"a":'.repeat(depth)}0${'}'.repeat(depth)}`
const requestLine = (change: Record<string, unknown>) => {
  const { input, ...rest } = { ...REQUEST, ...change }
  const text = typeof input === 'string' ? input : JSON.stringify(input)
  return `${JSON.stringify(rest).slice(0, -1)}${text === undefined ? '' : `,"input":${text}`}}`
}

describe('events', () => {
  test('a request for a permission is taken up to its limits', () => {
    expect(decodeEvent(requestLine({}))).toEqual(REQUEST)
    expect(decodeEvent(requestLine({ input: nested(64), toolUseId: 't', reason: 'why' }))).toHaveProperty(
      'reason',
    )
  })

  test('a message keeps the exact text the bridge wrote', () => {
    const message = { type: 'assistant', text: 'é\u2028"\\ \u0000', nested: { a: [1.5, null] } }
    const line = encodeMessage('7', message).trimEnd()
    const event = decodeEvent(line)
    expect(event).toMatchObject({ ev: 'message', id: '7', type: 'assistant' })
    expect(event.ev === 'message' && event.json).toBe(JSON.stringify(message))
  })

  test.each(['stdout', 'stderr', 'result', 'display'] as const)('output may come on %s', (stream) => {
    const event = { ev: 'output', id: '1', stream, data: 'x' } as const
    expect(decodeEvent(encodeLine(event).trimEnd())).toEqual(event)
  })

  test("carry the SDK's session id only where it is a UUID", () => {
    const id = '0b0b4c5e-1d2f-4a5b-8c6d-7e8f9a0b1c2d'
    expect(decodeEvent(encodeMessage('1', { type: 'x', session_id: id }).trimEnd())).toMatchObject({
      sdkSessionId: id,
    })
    expect(decodeEvent(encodeMessage('1', { type: 'x', session_id: '../x' }).trimEnd())).not.toHaveProperty(
      'sdkSessionId',
    )
  })

  test.each([
    ['nothing', ''],
    ['not JSON', 'hello'],
    ['a list', '[]'],
    ['null', 'null'],
    ['no id', '{"ev":"ready"}'],
    ['a bad id', '{"ev":"ready","id":"a b"}'],
    ['an unknown event', '{"ev":"party","id":"1"}'],
    ['a message that ends early', '{"ev":"message","id":"1","data":{"type":"x"}'],
    ['a message without type', '{"ev":"message","id":"1","data":{}}'],
    ['a message that is a list', '{"ev":"message","id":"1","data":[]}'],
    ['a second data field', '{"ev":"message","id":"1","data":{"type":"x"},"data":{"type":"y"}}'],
    [
      'a carriage return, which would end a line of the stream',
      '{"ev":"message","id":"1","data":{"type":"x",\r"a":1}}',
    ],
    ['a NUL', '{"ev":"message","id":"1","data":{"type":"x"\u0000}}'],
    ['done without a reason', '{"ev":"done","id":"1","data":{}}'],
    ['an error without a code', '{"ev":"error","id":"1","error":"x"}'],
    ['output on another stream', '{"ev":"output","id":"1","stream":"x","data":""}'],
    ['a request without a tool', requestLine({ tool: undefined })],
    ['a request with a long tool name', requestLine({ tool: 'x'.repeat(201) })],
    ['a request of another kind', requestLine({ kind: 'order' })],
    ['a request without input', requestLine({ input: undefined })],
    ['a request whose input is a list', requestLine({ input: [] })],
    ['a request with too much input', requestLine({ input: { text: 'x'.repeat(MAX_TOOL_INPUT_CHARS) } })],
    ['a request whose input nests without end', requestLine({ input: nested(100_000) })],
    ['a request with an id for a path', requestLine({ requestId: '../x' })],
    ['a request with a reason that is no text', requestLine({ reason: {} })],
    ['a withdrawal of nothing', '{"ev":"permission_withdrawn","id":"1"}'],
  ])('%s is a protocol error', (_name, line) => {
    expect(() => decodeEvent(line)).toThrow(ProtocolError)
  })

  test('whatever a bridge sends, decoding gives an event or a protocol error', () => {
    const nearly = fc.record({
      ev: fc.constantFrom(
        'message',
        'output',
        'done',
        'error',
        'ready',
        'permission_request',
        'permission_withdrawn',
      ),
      id: fc.string(),
      data: fc.jsonValue(),
    })
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          nearly.map((value) => JSON.stringify(value)),
        ),
        (line) => {
          try {
            expect(decodeEvent(line)).toHaveProperty('ev')
          } catch (error) {
            expect(error).toBeInstanceOf(ProtocolError)
          }
        },
      ),
    )
  })

  test('a long line of many small values is refused before it is parsed; long text and a short dense line are not', () => {
    const message = (data: string) => `{"ev":"message","id":"1","data":{"type":"x","a":${data}}}`
    expect(decodeEvent(message(`"${'x'.repeat(2_000_000)}"`))).toMatchObject({ ev: 'message', type: 'x' })
    expect(decodeEvent(message(`[${'{},'.repeat(200_000)}{}]`))).toMatchObject({ ev: 'message' })
    const csv = JSON.stringify('1,2,"[{\\'.repeat(200_000))
    expect(decodeEvent(message(csv))).toMatchObject({ ev: 'message' })
    for (const dense of [`[${'{},'.repeat(400_000)}{}]`, `${'['.repeat(600_000)}${']'.repeat(600_000)}`])
      expect(() => decodeEvent(message(dense))).toThrow(/more than 250000 values/)
  })
})
