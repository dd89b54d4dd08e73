import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeReply, encodeDisplay } from './interpreter-replies.ts'
import { ProtocolError } from './line-splitter.ts'

test('whatever something inside writes, reading gives a reply or a protocol error', () => {
  const nearly = fc.dictionary(
    fc.constantFrom('ready', 'display', 'value', 'result', 'done', '__proto__'),
    fc.oneof(fc.jsonValue(), fc.record({ error: fc.jsonValue(), exitCode: fc.jsonValue() })),
  )
  const lines = fc.oneof(
    fc.string(),
    fc.json(),
    nearly.map((value) => JSON.stringify(value)),
  )
  fc.assert(
    fc.property(lines, (line) => {
      try {
        expect(decodeReply(line)).toHaveProperty('kind')
      } catch (error) {
        expect(error).toBeInstanceOf(ProtocolError)
      }
    }),
  )
})

test.each([
  ['0', '0'],
  ['{"a":1}', '{"a":1}'],
  ['not JSON, which nobody looks at', 'not JSON, which nobody looks at'],
])('a result is the text between head and brace: %s', (text, json) => {
  expect(decodeReply(`{"result":${text}}`)).toEqual({ kind: 'result', json })
})

test('a display that is written again is the same', () => {
  const display = { isValue: true, data: { 'text/plain': 'ü\r\n', 'image/svg+xml': '<svg/>' } }
  expect(decodeReply(encodeDisplay(display))).toMatchObject({ kind: 'display', ...display })
  expect(decodeReply(encodeDisplay({ ...display, isValue: false }))).toMatchObject({ isValue: false })
})

test('an error without end is cut', () => {
  const text = 'x'.repeat(200_000)
  const line = JSON.stringify({ done: { error: { name: text, message: text, traceback: text } } })
  const reply = decodeReply(line)
  expect(JSON.stringify(reply).length).toBeLessThan(210 * 1024)
})

test.each(['text', 'text/', '/plain', 'a b/c', 'text/plain\n', `text/${'x'.repeat(200)}`, 'text/plain/x'])(
  'a key such as %j is not a media type',
  (key) => {
    expect(() => decodeReply(JSON.stringify({ display: { [key]: '' } }))).toThrow(ProtocolError)
  },
)

test('a display has a bounded number of types', () => {
  const types = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`text/x-${index}`, '']))
  expect(decodeReply(JSON.stringify({ display: types(20) }))).toMatchObject({ kind: 'display' })
  expect(() => decodeReply(JSON.stringify({ display: types(21) }))).toThrow(ProtocolError)
})
