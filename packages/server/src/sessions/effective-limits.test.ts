import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import { expect, test } from 'vitest'
import { effectiveLimits, storedLimits } from './effective-limits.ts'

test('a session lowers what its agent asks for, and an agent what the operator allows', () => {
  const limits = effectiveLimits(
    DEFAULT_LIMITS,
    { memoryMb: 512, outputMbPerSecond: 10 },
    { outputMbPerSecond: 2 },
  )
  expect(limits).toEqual({ ...DEFAULT_LIMITS, memoryMb: 512, outputMbPerSecond: 2 })
})

test('every limit that is asked for beyond the operator’s is named', () => {
  const asking = () => effectiveLimits(DEFAULT_LIMITS, { cpus: 64 }, { outputMbPerSecond: 33 })
  expect(asking).toThrow(
    'limits.cpus: must be at most 2, which this server allows; limits.outputMbPerSecond:',
  )
})

test('a session that was stored before there was a limit has it at its default', () => {
  const { outputMbPerSecond, ...older } = { ...DEFAULT_LIMITS, memoryMb: 300 }
  expect(storedLimits(JSON.stringify(older))).toEqual({ ...older, outputMbPerSecond })
})
