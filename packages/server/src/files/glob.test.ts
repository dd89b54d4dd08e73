import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compileGlob } from './glob.ts'

const isMatch = (pattern: string, path: string) => compileGlob(pattern)(path, { stepsLeft: 1e6 })

describe('a pattern', () => {
  test.each([
    ['*.py', 'a.py', true],
    ['*.py', 'deep/er/a.py', true],
    ['*.py', 'a.pyc', false],
    ['a?c', 'x/abc', true],
    ['a?c', 'ac', false],
    ['src/*.ts', 'src/a.ts', true],
    ['src/*.ts', 'src/deep/a.ts', false],
    ['src/**/*.ts', 'src/a.ts', true],
    ['src/**/*.ts', 'src/deep/er/a.ts', true],
    ['src/**/*.ts', 'srcs/a.ts', false],
    ['**/test', 'test', true],
    ['**/test', 'a/b/test', true],
    ['**/test', 'a/btest', false],
    ['src/**', 'src/a/b', true],
    ['port', 'docs/report.md', true],
    ['docs/rep', 'docs/report.md', true],
    ['docs', 'docs/report.md', false],
    ['Report', 'report.md', false],
    ['?', 'ü', true],
    ['?', '😀', true],
    ['*', '.hidden', true],
    ['[ab].+(x)|$', '[ab].+(x)|$', true],
    ['[ab]*', 'a', false],
  ])('%s and %s: %s', (pattern, path, expected) => {
    expect(isMatch(pattern, path)).toBe(expected)
  })

  test('means what the regular expression for it means', () => {
    const text = (letters: string) =>
      fc.string({ unit: fc.constantFrom(...letters), maxLength: 8, minLength: 1 })
    const check = (pattern: string, path: string) => {
      fc.pre(/[*?]/.test(pattern) && !pattern.includes('**'))
      const source = pattern.replace(/[*?]/g, (one) => (one === '*' ? '[^/]*' : '[^/]'))
      const subject = pattern.includes('/') ? path : path.slice(path.lastIndexOf('/') + 1)
      expect(isMatch(pattern, path)).toBe(new RegExp(`^${source}$`).test(subject))
    }
    fc.assert(fc.property(text('ab*?/'), text('ab/'), check))
  })

  test('that is made to be dear costs no more than pattern × path', () => {
    const budget = { stepsLeft: 20_000_000 }
    const pattern = `${'*a'.repeat(120)}*b`
    const before = process.threadCpuUsage()
    for (let name = 0; name < 100; name++) expect(compileGlob(pattern)('a'.repeat(255), budget)).toBe(false)
    const { user } = process.threadCpuUsage(before)
    expect(user).toBeLessThan(1_000_000)
    expect(20_000_000 - budget.stepsLeft).toBe(100 * pattern.length * 255)
    expect(compileGlob('**a**a**a**b')('a'.repeat(4000), { stepsLeft: 1000 })).toBe(false)
  })
})
