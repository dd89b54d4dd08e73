import fc from 'fast-check'
import { expect, test } from 'vitest'
import { formatSSE, parseSSE, type SSEFrame } from './sse.ts'

async function parse(chunks: Uint8Array[]): Promise<SSEFrame[]> {
  const source = async function* () {
    yield* chunks
  }
  return Array.fromAsync(parseSSE(source()))
}
const bytes = (text: string) => new TextEncoder().encode(text)

test('what is formatted is parsed back, however the bytes are cut', async () => {
  const frame = fc.record({
    id: fc.integer({ min: 1 }).map(String),
    event: fc.constantFrom('message', 'done'),
    data: fc.json(),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(frame), fc.integer({ min: 1, max: 20 }), async (frames, size) => {
      const whole = bytes(frames.map(formatSSE).join(''))
      const chunks = Array.from({ length: Math.ceil(whole.length / size) }, (_, i) =>
        whole.subarray(i * size, (i + 1) * size),
      )
      expect(await parse(chunks)).toEqual(frames)
    }),
  )
})

test.each(['\n', '\r\n', '\r'])('lines may end in %j', async (end) => {
  const text = ['id: 1', 'event: a', 'data: x', '', 'data: y', '', ''].join(end)
  const expected = [{ id: '1', event: 'a', data: 'x' }, { data: 'y' }]
  expect(await parse([bytes(text), bytes('\n')])).toEqual(expected)
  expect(await parse([...text].map(bytes).concat(bytes('\n')))).toEqual(expected)
})

test('comments, unknown fields and empty frames are no frames; data lines are joined', async () => {
  expect(await parse([bytes(': ping\n\nretry: 5\n\ndata: a\ndata:b\n\n')])).toEqual([{ data: 'a\nb' }])
})

test('a frame without its blank line is not a frame', async () => {
  expect(await parse([bytes('data: half')])).toEqual([])
})
