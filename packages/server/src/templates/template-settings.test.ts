import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import type { TemplateSettings } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { assertUsable, languagesOf } from './template-settings.ts'

test.each<[TemplateSettings, string[]]>([
  [{ runtime: 'python3.11' }, ['python', 'shell']],
  [{ runtime: 'node' }, ['javascript', 'shell']],
  [{ runtime: 'bash' }, ['shell']],
  [{}, ['shell']],
  [{ runtime: 'python3', languages: ['shell', 'shell', 'python'] }, ['shell', 'python']],
])('%j runs %j', (settings, languages) => {
  expect(languagesOf(settings)).toEqual(languages)
})

test.each<[TemplateSettings, string]>([
  [{ limits: { memoryMb: DEFAULT_LIMITS.memoryMb + 1 } }, 'limits.memoryMb: must be at most'],
  [{ network: ['not a host!'] }, 'not a host!'],
  [{ runtime: 'python9.9' }, 'looked for /usr/bin/python9.9 and /usr/local/bin/python9.9'],
  [{ warm: { persistent: { min: 2, target: 1, idle: 1_000 } } }, 'warm.persistent.target'],
])('%j is refused: %s', async (settings, text) => {
  await expect(assertUsable(settings, DEFAULT_LIMITS)).rejects.toThrow(text)
})

test('what sessions can have is taken', async () => {
  const limits = { memoryMb: 256 }
  await assertUsable({ limits, network: ['pypi.org'], runtime: 'bash' }, DEFAULT_LIMITS)
})
