import { expect, test } from 'vitest'
import { isJson } from './check-result.ts'

test('small and large results are told from what is no JSON', async () => {
  const large = JSON.stringify({ text: 'x'.repeat(1024 * 1024) })
  expect(await isJson('null')).toBe(true)
  expect(await isJson('{"a":')).toBe(false)
  expect(await isJson('')).toBe(false)
  const answers = await Promise.all([large, `${large}}`, large, large].map(isJson))
  expect(answers).toEqual([true, false, true, true])
})
