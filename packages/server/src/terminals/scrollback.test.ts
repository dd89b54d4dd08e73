import { expect, test } from 'vitest'
import { Scrollback } from './scrollback.ts'

const KB = 1024
const fill = (scrollback: Scrollback, text: string, bytes: number) => {
  for (let size = 0; size < bytes; size += text.length) scrollback.push(Buffer.from(text))
}

test('what fits is replayed as it was', () => {
  const scrollback = new Scrollback()
  expect(scrollback.replay()).toEqual(Buffer.alloc(0))
  scrollback.push(Buffer.from([0xbc, 0x1b]))
  scrollback.push(Buffer.from('[1mrest'))
  expect(scrollback.replay()).toEqual(Buffer.from([0xbc, 0x1b, ...Buffer.from('[1mrest')]))
})

test('of more, only the end is kept, and it begins behind a line', () => {
  const scrollback = new Scrollback()
  fill(scrollback, `${'x'.repeat(999)}\n`.repeat(10).slice(0, -500), 2000 * KB)
  scrollback.push(Buffer.from('last'))
  const text = scrollback.replay().toString()
  expect(text.length).toBeGreaterThan(250 * KB)
  expect(text.length).toBeLessThan(300 * KB)
  expect(text.endsWith('last')).toBe(true)
  expect(text.indexOf('\n')).toBe(999)
})

test.each([
  ['a sequence', `${'x'.repeat(500)}\x1b[31m`, '\x1b[31m'],
  ['a character', '€'.repeat(1000), '€€'],
])('without lines it begins where %s does', (_, text, beginning) => {
  const scrollback = new Scrollback()
  const bytes = Buffer.from(text.repeat(10))
  // Cut where it hurts.
  for (let size = 0; size < 600 * KB; size += bytes.length) {
    scrollback.push(bytes.subarray(0, bytes.length - 2))
    scrollback.push(bytes.subarray(bytes.length - 2))
  }
  expect(scrollback.replay().toString().slice(0, beginning.length)).toBe(beginning)
})

test('modes that were set in what is lost are set again, as they were last', () => {
  const scrollback = new Scrollback()
  scrollback.push(Buffer.from('\x1b[?25l\x1b[?1049h\x1b[?2004h\x1b[?1000;1006h\x1b[?99999h\x1b[?20'))
  scrollback.push(Buffer.from('04l'))
  fill(scrollback, `${'x'.repeat(99)}\n`, 600 * KB)
  const modes = '\x1b[?25l\x1b[?1049h\x1b[?2004l\x1b[?1000h\x1b[?1006h'
  expect(scrollback.replay().toString().split('x', 1)[0]).toBe(modes)
})
