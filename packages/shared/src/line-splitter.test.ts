import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LineSplitter, ProtocolError } from './line-splitter.ts'

const splitter = (maxBytes?: number) => new LineSplitter(maxBytes)
const bytes = (text: string) => new TextEncoder().encode(text)
const decodeAll = (chunks: Uint8Array[]) => {
  const lines = splitter()
  return chunks.flatMap((chunk) => [...lines.push(chunk)])
}

describe('lines', () => {
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
