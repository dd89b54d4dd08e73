import { expect, test } from 'vitest'
import { inWorkspace } from './workspace-path.ts'

test.each([
  ['', undefined],
  ['/', undefined],
  ['.', undefined],
  ['./', undefined],
  ['/workspace', undefined],
  ['/workspace/', undefined],
  ['a.txt', 'a.txt'],
  ['/a.txt', 'a.txt'],
  ['./a/b/', 'a/b'],
  ['/workspace/a/b', 'a/b'],
  ['workspace/a', 'workspace/a'],
  ['/workspaces/a', 'workspaces/a'],
  // Left for those to refuse who open files.
  ['../a', '../a'],
  ['/workspace/../a', '../a'],
])('%j is %j', (path, inside) => {
  expect(inWorkspace(path)).toBe(inside)
})
