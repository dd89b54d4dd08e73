import { readFile, writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { AshError, ERRORS, isAshError, isErrorCode } from './errors.ts'

const PAGE = new URL('../../../docs/errors.md', import.meta.url)

// UPDATE=1 writes the page; what is above the table is kept.
test('docs/errors.md is the error table', async () => {
  const page = await readFile(PAGE, 'utf8')
  const current = `${page.slice(0, page.indexOf(HEADER))}${table()}`
  if (process.env.UPDATE) await writeFile(PAGE, current)
  else expect(page, 'run: UPDATE=1 pnpm test packages/shared/src/errors.test.ts').toBe(current)
})

test('an error carries the status and retryability of its code', () => {
  const error = new AshError('pool_full', 'All 2 sandboxes are in use', { retryAfterSeconds: 5 })
  expect(error).toMatchObject({ statusCode: 503, isRetryable: true, retryAfterSeconds: 5 })
  expect(isAshError(error)).toBe(true)
  expect(isAshError(error, 'pool_full')).toBe(true)
  expect(isAshError(error, 'no_turn')).toBe(false)
  expect(isAshError(new Error('pool_full'))).toBe(false)
})

test('only names in the table are codes', () => {
  expect(isErrorCode('pool_full')).toBe(true)
  for (const other of ['toString', 'poolFull', '', undefined, 503]) expect(isErrorCode(other)).toBe(false)
})

const HEADER = '| code | status | retry | meaning |'

function table(): string {
  const rows = Object.entries(ERRORS).map(
    ([code, { status, retryable, summary }]) =>
      `| \`${code}\` | ${status} | ${retryable ? 'yes' : 'no'} | ${summary} |`,
  )
  return `${[HEADER, '|---|---|---|---|', ...rows].join('\n')}\n`
}
