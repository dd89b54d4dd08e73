import { expect, test } from 'vitest'
import { definesHandler } from './handler-code.ts'

test.each([
  ['python', 'def handler(event):\n    return 1'],
  ['python', 'import os\n\nasync def handler (event, context):\n    pass'],
  ['python', 'handler = lambda event: 1'],
  ['python', 'from lib import other, handler'],
  ['javascript', 'function handler(event) { return 1 }'],
  ['javascript', 'export const handler = async (event) => 1'],
  ['javascript', 'exports.handler = async (event) => 1'],
  ['javascript', 'module.exports.handler = (event) => 1'],
  [undefined, 'def handler(event): pass'],
] as const)('%s: %s is called', (language, code) => {
  expect(definesHandler(code, language)).toBe(true)
})

test.each([
  ['python', 'print(42)'],
  ['python', 'class A:\n    def handler(self): pass'],
  ['python', '# def handler(event):'],
  ['python', 'handler == 1'],
  ['python', 'def handlers(event): pass'],
  ['javascript', 'console.log("function handler(")'],
  ['javascript', 'const handlers = 1'],
  ['shell', 'handler=1\ndef handler('],
] as const)('%s: %s just runs', (language, code) => {
  expect(definesHandler(code, language)).toBe(false)
})
