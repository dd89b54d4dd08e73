import type { Execution } from '@ash-ai/sdk'
import { expect, test } from 'vitest'
import { exitCodeOfRun } from './execution-printer.ts'
import { EXECUTION } from './testing/executions.ts'

test.each([
  ['completed', undefined, 0],
  ['completed', 4, 4],
  ['failed', undefined, 1],
  ['failed', 3, 3],
  ['failed', 125, 125],
  ['failed', 137, 1],
  ['failed', -1, 1],
  ['timeout', 9, 124],
  ['crashed', undefined, 70],
  ['cancelled', 1, 130],
] as const)('%s with the exit code %s ends with %i', (status, exitCode, code) => {
  const run = { ...EXECUTION, status, ...(exitCode !== undefined && { exitCode }) } as Execution
  expect(exitCodeOfRun(run)).toBe(code)
})
