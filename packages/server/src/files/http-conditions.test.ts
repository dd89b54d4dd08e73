import { describe, expect, test } from 'vitest'
import { allowsWrite, matches, parseRange } from './http-conditions.ts'

describe('a range', () => {
  test.each([
    ['bytes=0-0', { start: 0, end: 0 }],
    ['bytes=2-', { start: 2, end: 9 }],
    ['bytes=2-100', { start: 2, end: 9 }],
    ['bytes=-3', { start: 7, end: 9 }],
    ['bytes=-100', { start: 0, end: 9 }],
    ['bytes=10-', 'unsatisfiable'],
    ['bytes=-0', 'unsatisfiable'],
  ])('%s of ten bytes', (header, range) => {
    expect(parseRange(header, 10)).toEqual(range)
  })

  test.each([
    undefined,
    '',
    'bytes=',
    'bytes=-',
    'bytes=5-2',
    'bytes=0-1,3-4',
    'lines=0-1',
    'bytes=1e2-',
    'bytes=0x1-',
  ])('%s is ignored', (header) => {
    expect(parseRange(header, 10)).toBeUndefined()
  })

  test('of nothing cannot be satisfied', () => {
    expect(parseRange('bytes=0-', 0)).toBe('unsatisfiable')
    expect(parseRange('bytes=-1', 0)).toBe('unsatisfiable')
  })
})

test('an etag is found in a list, weak or not', () => {
  expect(matches('"a", W/"b"', '"b"')).toBe(true)
  expect(matches('*', '"b"')).toBe(true)
  expect(matches('"a"', '"b"')).toBe(false)
  expect(matches('', '"b"')).toBe(false)
  expect(matches('*', undefined)).toBe(false)
})

test('a write goes on where its conditions hold', () => {
  expect(allowsWrite({}, undefined)).toBe(true)
  expect(allowsWrite({ ifMatch: '"a"' }, '"a"')).toBe(true)
  expect(allowsWrite({ ifMatch: '"a"' }, '"b"')).toBe(false)
  expect(allowsWrite({ ifMatch: '*' }, undefined)).toBe(false)
  expect(allowsWrite({ ifNoneMatch: '*' }, undefined)).toBe(true)
  expect(allowsWrite({ ifNoneMatch: '*' }, '"a"')).toBe(false)
  expect(allowsWrite({ ifNoneMatch: '"a"' }, '"b"')).toBe(true)
})
