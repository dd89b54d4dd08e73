import fc from 'fast-check'
import { expect, test } from 'vitest'
import { NO_USAGE, type Usage } from './token-usage.ts'
import { createUsageReader } from './usage-meter.ts'

const event = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`

const START_USAGE = {
  input_tokens: 12,
  cache_creation_input_tokens: 300,
  cache_read_input_tokens: 5000,
  cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 200 },
  output_tokens: 2,
  service_tier: 'standard',
  inference_geo: 'global',
}
const START = event('message_start', {
  message: {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'claude-opus-5-5',
    content: [],
    usage: START_USAGE,
  },
})
const DELTAS = [
  event('content_block_start', {
    index: 0,
    content_block: { type: 'thinking', thinking: '', signature: '' },
  }),
  event('content_block_delta', {
    index: 0,
    delta: { type: 'thinking_delta', thinking: '', estimated_tokens: 64 },
  }),
  event('content_block_stop', { index: 0 }),
  event('ping', {}),
  event('content_block_delta', {
    index: 1,
    delta: { type: 'text_delta', text: 'Grüße, "message_delta" 🙂' },
  }),
  event('content_block_delta', { index: 2, delta: { type: 'input_json_delta', partial_json: '{"a":[1,2' } }),
].join('')
const END = `${event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 77 } })}${event('message_stop', {})}`
const STREAM = Buffer.from(START + DELTAS + END)

const WHOLE: Usage = {
  ...NO_USAGE,
  model: 'claude-opus-5-5',
  inputTokens: 12,
  outputTokens: 77,
  cacheCreationTokens: 300,
  cacheCreation1hTokens: 200,
  cacheReadTokens: 5000,
  isComplete: true,
}

function readStream(...chunks: (Buffer | string)[]): Usage | undefined {
  const reader = createUsageReader('text/event-stream; charset=utf-8')
  for (const chunk of chunks) reader?.push(Buffer.from(chunk))
  return reader?.end()
}

function readJson(body: string | Buffer): Usage | undefined {
  const reader = createUsageReader('application/json')
  reader?.push(Buffer.from(body))
  return reader?.end()
}

test('a stream tells its usage', () => {
  expect(readStream(STREAM)).toEqual(WHOLE)
})

test('a stream cut into any chunks tells the same usage', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: STREAM.length }), { maxLength: 40 }), (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), STREAM.length]
      const chunks = at.slice(1).map((end, index) => STREAM.subarray(at[index], end))
      expect(readStream(...chunks)).toEqual(WHOLE)
    }),
  )
})

test('a stream in single bytes, or with CRLF, tells the same usage', () => {
  expect(readStream(...[...STREAM].map((byte) => Buffer.of(byte)))).toEqual(WHOLE)
  expect(readStream(STREAM.toString().replaceAll('\n', '\r\n'))).toEqual(WHOLE)
})

test('later counts replace earlier ones and what they leave out stays', () => {
  const usage = {
    input_tokens: 20,
    cache_read_input_tokens: 6000,
    output_tokens: 80,
    cache_creation_input_tokens: null,
  }
  const more = event('message_delta', {
    delta: {},
    usage: { ...usage, server_tool_use: { web_search_requests: 2 } },
  })
  expect(readStream(START, DELTAS, more, END)).toEqual({
    ...WHOLE,
    inputTokens: 20,
    cacheReadTokens: 6000,
    webSearches: 2,
  })
})

test('inferences billed apart are listed, with their model', () => {
  const counts = {
    input_tokens: 5,
    output_tokens: 6,
    cache_read_input_tokens: 0,
    cache_creation_input_tokens: 0,
  }
  const iterations = [
    { type: 'message', model: 'claude-opus-5-5', ...counts },
    { type: 'compaction', ...counts },
    { type: 'advisor_message', model: 'claude-fable-5-1', ...counts },
  ]
  const delta = event('message_delta', { delta: {}, usage: { output_tokens: 77, iterations } })
  const tokens = { inputTokens: 5, outputTokens: 6, cacheReadTokens: 0, cacheCreationTokens: 0 }
  expect(readStream(START, delta)?.others).toMatchObject([
    { model: 'claude-opus-5-5', ...tokens },
    { model: 'claude-fable-5-1', ...tokens },
  ])
})

test('fast and regional inference are reported', () => {
  const usage = { ...START_USAGE, speed: 'fast', inference_geo: 'us' }
  expect(readJson(JSON.stringify({ model: 'm', usage }))).toMatchObject({ isFast: true, isRegional: true })
})

test('a stream that breaks off keeps its input and has its output estimated from what came', () => {
  const text = 'x'.repeat(401)
  const delta = event('content_block_delta', { index: 0, delta: { type: 'text_delta', text } })
  const broken = { ...WHOLE, isComplete: false, isEstimated: true }
  expect(readStream(START, delta)).toEqual({ ...broken, outputTokens: 101 })
  expect(readStream(START, DELTAS)).toEqual({ ...broken, outputTokens: 64 + Math.ceil(33 / 4) })
  expect(readStream(START)).toEqual({ ...broken, outputTokens: 2 })
  expect(readStream(START.slice(0, -20))).toEqual({ ...NO_USAGE, isEstimated: true })
  expect(readStream()).toEqual({ ...NO_USAGE, isEstimated: true })
})

test('a stream that ends in an error event is not complete', () => {
  const error = event('error', { error: { type: 'overloaded_error', message: 'Overloaded' } })
  expect(readStream(START, DELTAS, error)).toMatchObject({
    isComplete: false,
    isEstimated: true,
    inputTokens: 12,
  })
})

test('a stream that never names its input is estimated, whatever its end says', () => {
  expect(readStream(END)).toMatchObject({ outputTokens: 77, inputTokens: 0, isEstimated: true })
})

test('a huge line is passed over, even one that has usage', () => {
  const padding = 'x'.repeat(64 * 1024)
  const huge = event('message_delta', { usage: { output_tokens: 999 }, padding: padding.repeat(5) })
  const pieces = huge.match(/[\s\S]{1,1000}/g) ?? []
  expect(readStream(START, DELTAS, ...pieces, END)).toEqual(WHOLE)
  const large = event('message_delta', { usage: { output_tokens: 999 }, padding: padding.repeat(3) })
  expect(readStream(START, ...(large.match(/[\s\S]{1,1000}/g) ?? []))?.outputTokens).toBe(999)
})

test('a whole message tells its usage', () => {
  const body = JSON.stringify({ type: 'message', model: 'claude-opus-5-5', content: [], usage: START_USAGE })
  expect(readJson(body)).toEqual({ ...WHOLE, outputTokens: 2 })
  expect(readJson(body.slice(0, -1))).toMatchObject({ inputTokens: 0, isComplete: false, isEstimated: true })
  expect(readJson(Buffer.alloc(9 * 1024 * 1024, ' '))).toMatchObject({ isEstimated: true })
})

test('what is compressed, or neither a stream nor JSON, has no reader', () => {
  expect(createUsageReader('text/event-stream', 'gzip')).toBeUndefined()
  expect(createUsageReader('text/event-stream', 'identity')).toBeDefined()
  expect(createUsageReader('text/html')).toBeUndefined()
  expect(createUsageReader(undefined)).toBeUndefined()
})

test('no bytes at all make a reader throw or count nonsense', () => {
  const line = fc.oneof(
    fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
    fc.json().map((json) => Buffer.from(`data: ${json}\n`)),
    fc
      .record({
        type: fc.constantFrom('message_start', 'message_delta', 'message_stop', 'content_block_delta'),
        message: fc.jsonValue(),
        delta: fc.jsonValue(),
        usage: fc.oneof(
          fc.jsonValue(),
          fc.record({ output_tokens: fc.oneof(fc.jsonValue(), fc.double()), iterations: fc.jsonValue() }),
        ),
      })
      .map((data) => Buffer.from(`data: ${JSON.stringify(data)}\n`)),
  )
  fc.assert(
    fc.property(fc.array(line, { maxLength: 8 }), (lines) => {
      for (const usage of [readStream(...lines), readJson(Buffer.concat(lines))]) {
        expect(Number.isSafeInteger(usage?.outputTokens)).toBe(true)
        expect(usage?.outputTokens).toBeGreaterThanOrEqual(0)
      }
    }),
  )
})
