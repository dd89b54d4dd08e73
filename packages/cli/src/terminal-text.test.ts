import { expect, test } from 'vitest'
import { toSafeJson, toSafeLine, toSafeText } from './terminal-text.ts'

test('what acts on a terminal is shown instead', () => {
  expect(toSafeText('a\x1b[31mb\x07\x08\x00\x7f\rc')).toBe('a\\x1b[31mb\\x07\\x08\\x00\\x7f\\x0dc')
  expect(toSafeText('\x9b31m \x9d0;title\x9c')).toBe('\\x9b31m \\x9d0;title\\x9c')
  expect(toSafeText('user\u202etxt.exe\u2066')).toBe('user\\u202etxt.exe\\u2066')
})

test('ordinary text stays as it is', () => {
  const text = 'naïve → 日本語 🙂👩‍👩‍👧\n\tindented שלום\u200f'
  expect(toSafeText(text)).toBe(text)
  expect(toSafeText('a\r\nb')).toBe('a\nb')
})

test('a line is one line', () => {
  expect(toSafeLine('a\nb\t\nc')).toBe('a b c')
})

test('JSON keeps its meaning and holds nothing that acts', () => {
  const value = { text: '\x1b[2J\x9b31m\x7f\u202e"\n' }
  const json = toSafeJson(value)
  expect(JSON.parse(json)).toEqual(value)
  expect(json).toMatch(/^[\x20-\x7e]+$/)
})
