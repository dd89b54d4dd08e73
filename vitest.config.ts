import { defineConfig } from 'vitest/config'
import { EXTENDED_TESTS } from './test/extended-tests.mjs'

// Packages resolve to their sources: tests need no build of what they import.
const resolve = { conditions: ['development', 'node'] }
const project = (name: string, include: string[], timeoutMs: number, options: object) => ({
  resolve,
  ssr: { resolve },
  test: { name, include, testTimeout: timeoutMs, hookTimeout: timeoutMs, ...options },
})

const VM_TESTS = [
  'test/vm/*.test.ts',
  'test/isolation/limits.test.ts',
  'test/isolation/escape/resources.test.ts',
]

export default defineConfig({
  test: {
    projects: [
      // Files share workers: a fresh one for each would cost more than most of them run. No global state, then.
      project('unit', ['packages/*/src/**/*.test.ts'], 20_000, {
        isolate: false,
        maxWorkers: 2,
        retry: 1,
      }),
      // Real processes on few cores, which mostly wait: three files at a time. What a neighbour may have disturbed is
      // tried again; a fault fails each time.
      project('integration', ['test/integration/**/*.test.ts'], 120_000, {
        maxWorkers: 3,
        retry: 2,
        exclude: EXTENDED_TESTS,
      }),
      project('extended', EXTENDED_TESTS, 120_000, { maxWorkers: 3, retry: 2 }),
      // Attempts to use up a machine: one file at a time.
      project('isolation', ['test/isolation/**/*.test.ts'], 60_000, { fileParallelism: false, retry: 1 }),
      // Run by `pnpm test:vm` inside a VM, where everything takes a multiple of its time.
      project('vm', VM_TESTS, 600_000, { fileParallelism: false }),
    ],
  },
})
