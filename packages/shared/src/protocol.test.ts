import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LineSplitter, ProtocolError } from './line-splitter.ts'
import { decodeCommand, decodeEvent, encodeLine, encodeMessage } from './protocol.ts'
import { MAX_TOOL_INPUT_CHARS } from './tool-input.ts'

const splitter = (maxBytes?: number) => new LineSplitter(maxBytes)
const bytes = (text: string) => new TextEncoder().encode(text)
const decodeAll = (chunks: Uint8Array[]) => {
  const lines = splitter()
  return chunks.flatMap((chunk) => [...lines.push(chunk)])
}

describe('lines', () => {
  test('a long line of many small values is refused before it is parsed; long text and a short dense line are not', () => {
    const message = (data: string) => `{"ev":"message","id":"1","data":{"type":"x","a":${data}}}`
    expect(decodeEvent(message(`"${'x'.repeat(2_000_000)}"`))).toMatchObject({ ev: 'message', type: 'x' })
    expect(decodeEvent(message(`[${'{},'.repeat(200_000)}{}]`))).toMatchObject({ ev: 'message' })
    const csv = JSON.stringify('1,2,"[{\\'.repeat(200_000))
    expect(decodeEvent(message(csv))).toMatchObject({ ev: 'message' })
    for (const dense of [`[${'{},'.repeat(400_000)}{}]`, `${'['.repeat(600_000)}${']'.repeat(600_000)}`])
      expect(() => decodeEvent(message(dense))).toThrow(/more than 250000 values/)
  })

  test('an unfinished line costs about its length, also when it comes byte by byte', () => {
    const lines = splitter()
    const chunk = bytes('xx')
    const before = process.memoryUsage().heapUsed
    for (let count = 0; count < 2_000_000; count++) [...lines.push(chunk.subarray(0, 1))]
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(100 * 1024 * 1024)
    expect([...lines.push(bytes('\n'))]).toEqual(['x'.repeat(2_000_000)])
  })

  test('come out whole however the bytes are cut, also inside a character', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'grapheme' })), fc.array(fc.nat()), (values, cuts) => {
        const whole = bytes(values.map((value) => `${JSON.stringify(value)}\n`).join(''))
        const places = [...new Set(cuts.map((cut) => cut % (whole.length + 1)))].sort((a, b) => a - b)
        const chunks = [0, ...places].map((from, index) =>
          whole.subarray(from, places[index] ?? whole.length),
        )
        expect(decodeAll(chunks).map((line) => JSON.parse(line))).toEqual(values)
      }),
    )
  })

  test('longer than the limit are refused before they are complete', () => {
    const lines = splitter(10)
    expect([...lines.push(bytes('123456789'))]).toEqual([])
    expect(() => [...lines.push(bytes('01'))]).toThrow(ProtocolError)
  })

  test('that are not UTF-8 are refused', () => {
    expect(() => [...splitter().push(new Uint8Array([0xff, 0xfe, 10]))]).toThrow(ProtocolError)
  })
})

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
})

describe('commands', () => {
  test('survive the way to the bridge', () => {
    const command = { cmd: 'query', id: '3', content: 'hi\nthere', options: { model: 'm' } } as const
    expect(decodeCommand(encodeLine(command).trimEnd())).toEqual(command)
  })

  test('preload needs nothing but an id', () => {
    expect(decodeCommand('{"cmd":"preload","id":"1"}')).toEqual({ cmd: 'preload', id: '1' })
    expect(() => decodeCommand('{"cmd":"preload"}')).toThrow(ProtocolError)
  })

  const REQUEST = { kind: 'handler', code: 'x', event: '{"a":1}', env: { A: 'b' }, timeoutMs: 1 } as const
  const EXECUTE = {
    cmd: 'execute',
    id: '1',
    interpreter: 'i-1',
    request: REQUEST,
    maxOutputBytes: 1,
  } as const

  test.each([
    { cmd: 'terminal', id: '1', cols: 80, rows: 24, command: 'top' },
    { cmd: 'terminal_read', id: '1', terminal: 't' },
    { cmd: 'terminal_input', id: '1', terminal: 't', data: 'bHMK' },
    { cmd: 'terminal_resize', id: '1', terminal: 't', cols: 1, rows: 1000 },
    { cmd: 'terminal_close', id: '1', terminal: 't' },
    { cmd: 'start', id: '1', language: 'shell' },
    { cmd: 'start', id: '1', language: 'python', env: { A: 'b' } },
    EXECUTE,
    { cmd: 'cancel', id: '1', interpreter: 'i-1', how: 'interrupt' },
    { cmd: 'stop', id: '1', interpreter: 'i-1' },
    { cmd: 'ports', id: '1' },
    { cmd: 'tunnel', id: '1', port: 65_535, token: '0f'.repeat(32) },
  ] as const)('$cmd is taken as it was sent', (command) => {
    expect(decodeCommand(encodeLine(command).trimEnd())).toEqual(command)
  })

  test.each([
    ['a terminal without a size', { cmd: 'terminal', cols: 80 }],
    ['a terminal with too many columns', { cmd: 'terminal', cols: 1001, rows: 24 }],
    ['a terminal with half a row', { cmd: 'terminal_resize', terminal: 't', cols: 80, rows: 0.5 }],
    ['input that is no text', { cmd: 'terminal_input', terminal: 't', data: 1 }],
    ['a terminal for a path', { cmd: 'terminal_close', terminal: '../t' }],
    ['an unknown language', { cmd: 'start', language: 'cobol' }],
    ['variables that are no text', { cmd: 'start', language: 'shell', env: { A: 1 } }],
    ['no interpreter', { ...EXECUTE, interpreter: undefined }],
    ['an interpreter for a path', { ...EXECUTE, interpreter: '../x' }],
    ['no request', { ...EXECUTE, request: undefined }],
    ['an unknown kind', { ...EXECUTE, request: { ...REQUEST, kind: 'x' } }],
    ['code that is no text', { ...EXECUTE, request: { ...REQUEST, code: 1 } }],
    ['an event that is no text', { ...EXECUTE, request: { ...REQUEST, event: {} } }],
    ['no time', { ...EXECUTE, request: { ...REQUEST, timeoutMs: undefined } }],
    ['no limit of output', { ...EXECUTE, maxOutputBytes: -1 }],
    ['another way to cancel', { cmd: 'cancel', interpreter: 'i', how: 'ask' }],
    ['nothing to stop', { cmd: 'stop' }],
    ['no port', { cmd: 'tunnel', port: 0, token: '0f'.repeat(32) }],
    ['a port that is text', { cmd: 'tunnel', port: '80', token: '0f'.repeat(32) }],
    ['a token too short', { cmd: 'tunnel', port: 80, token: '0f' }],
    ['a token of two lines', { cmd: 'tunnel', port: 80, token: `${'0f'.repeat(32)}\n` }],
  ])('%s is a protocol error', (_, command) => {
    expect(() => decodeCommand(JSON.stringify({ ...command, id: '1' }))).toThrow(ProtocolError)
  })

  test.each(['{"cmd":"fly","id":"1"}', '{"cmd":"ping"}', '"ping"'])('%s is a protocol error', (line) => {
    expect(() => decodeCommand(line)).toThrow(ProtocolError)
  })
})
