import { expect, test } from 'vitest'
import { parseIgnorePatterns } from './ignore-patterns.ts'

test.each([
  ['*.log', 'a.log', true],
  ['*.log', 'deep/er/a.log', true],
  ['*.log', 'a.log.txt', false],
  ['/top', 'top', true],
  ['/top', 'a/top', false],
  ['a/b', 'a/b', true],
  ['a/b', 'x/a/b', false],
  ['a/**/b', 'a/b', true],
  ['a/**/b', 'a/x/y/b', true],
  ['a/**/b', 'a/x/y/c', false],
  ['**/b', 'x/y/b', true],
  ['a/**', 'a/x', true],
  ['a/**', 'a', false],
  ['a*c', 'abbc', true],
  ['a?c', 'abc', true],
  ['a?c', 'ac', false],
  ['*.py[cod]', 'x.pyc', true],
  ['*.py[cod]', 'x.pyx', false],
  ['[!a-c]x', 'dx', true],
  ['[!a-c]x', 'bx', false],
  ['[', '[', true],
  ['\\!x', '!x', true],
  ['\\#x', '#x', true],
  ['a\\*', 'a*', true],
  ['a\\*', 'ab', false],
  ['x  ', 'x', true],
  ['x\\ ', 'x ', true],
  ['# x', '# x', false],
  ['', 'x', false],
  ['/', 'x', false],
  ['*', 'anything', true],
  ['n\xff*', 'n\xff1', true],
])('%j on %j: %s', (pattern, path, isIgnored) => {
  expect(parseIgnorePatterns(pattern).ignores(path, false)).toBe(isIgnored)
})

test('a slash at the end names folders only', () => {
  const { ignores } = parseIgnorePatterns('build/')
  expect([ignores('build', true), ignores('a/build', true), ignores('build', false)]).toEqual([
    true,
    true,
    false,
  ])
})

test('the last pattern that matches wins', () => {
  const { ignores } = parseIgnorePatterns('*.log\n!keep.log\r\nold/*\n!old/keep.log\nkeep.log.gz')
  const paths = ['a.log', 'keep.log', 'old/x', 'old/keep.log', 'keep.log.gz']
  expect(paths.map((path) => ignores(path, false))).toEqual([true, false, true, false, true])
})

test('patterns made to explode take no time', () => {
  const { ignores } = parseIgnorePatterns(`${'a*'.repeat(400)}b\n${'**/a/'.repeat(150)}b`)
  const startedMs = performance.now()
  expect(ignores('a'.repeat(255), false)).toBe(false)
  expect(ignores('a/'.repeat(2000).slice(0, -1), false)).toBe(false)
  expect(performance.now() - startedMs).toBeLessThan(2000)
})

test('patterns that cost too much in all are told', () => {
  const { ignores } = parseIgnorePatterns(`${`${'*a'.repeat(400)}b\n`.repeat(1000)}`)
  const name = 'a'.repeat(255)
  const many = () => {
    for (;;) ignores(name, false)
  }
  expect(many).toThrow(
    expect.objectContaining({ code: 'checkpoint_failed', message: expect.stringContaining('.ashignore') }),
  )
})

test('a list past its limits leaves nothing out: its end might have kept what its start leaves out', () => {
  expect(parseIgnorePatterns('*\n'.repeat(1000)).ignores('x', false)).toBe(true)
  expect(parseIgnorePatterns('*\n'.repeat(1001)).ignores('x', false)).toBe(false)
  expect(parseIgnorePatterns(`*\n${'y'.repeat(1001)}`).ignores('x', false)).toBe(false)
})
