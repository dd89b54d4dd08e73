import { defineConfig } from 'vitest/config'

const resolve = { conditions: ['development', 'node', 'import', 'default'] }
const project = (name: string, include: string[], timeoutMs: number, extra: object = {}) => ({
  resolve,
  ssr: { resolve },
  test: { name, include, testTimeout: timeoutMs, hookTimeout: timeoutMs, ...extra },
})

export default defineConfig({
  test: {
    projects: [
      project('unit', ['packages/*/src/**/*.test.ts'], 20_000),
      // Real processes on few cores: one file at a time, so that a time-out means a hang and not a neighbour.
      project('integration', ['test/integration/**/*.test.ts'], 90_000, { fileParallelism: false }),
      project('isolation', ['test/isolation/**/*.test.ts'], 60_000, { fileParallelism: false }),
    ],
  },
})
