import { expect, test } from 'vitest'
import { indentJson, isJson, parseExact } from './json-text.ts'

test.each([
  ['{}', '{}'],
  ['[]', '[]'],
  ['12345678901234567890.10', '12345678901234567890.10'],
  [
    '{"a":[1,{"b":"x, {y}: \\"z\\""}],"c":[]}',
    JSON.stringify({ a: [1, { b: 'x, {y}: "z"' }], c: [] }, null, 2),
  ],
  [' [ true , null ] ', '[\n  true,\n  null\n]'],
])('%s is indented as text', (json, indented) => {
  expect(indentJson(json)).toBe(indented)
})

test('what is nested very deep is left alone', () => {
  const deep = '['.repeat(500) + ']'.repeat(500)
  expect(indentJson(deep)).toBe(deep)
})

test('integers of any size survive parsing', () => {
  expect(parseExact('{"a":1180591620717411303424,"b":1.5,"c":2}')).toEqual({
    a: 1180591620717411303424n,
    b: 1.5,
    c: 2,
  })
  expect(isJson('{"a":')).toBe(false)
})
