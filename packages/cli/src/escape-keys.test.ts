import { expect, test } from 'vitest'
import { EscapeKeys } from './escape-keys.ts'

const typed = (...pieces: string[]) => {
  const keys = new EscapeKeys()
  const taken = pieces.map((piece) => keys.take(Buffer.from(piece)))
  return {
    text: taken.map(({ data }) => Buffer.from(data).toString()).join(''),
    leaves: taken.some(({ leaves }) => leaves),
  }
}

test.each([
  [['~.'], '', true],
  [['~', '.'], '', true],
  [['ls\r', '~.'], 'ls\r', true],
  [['ls\r~.rest'], 'ls\r', true],
  [['a~.'], 'a~.', false],
  [['~~.'], '~.', false],
  [['cd ~\r'], 'cd ~\r', false],
  [['~/x\r'], '~/x\r', false],
  [['~', '/x'], '~/x', false],
  [['ü\r'], 'ü\r', false],
])('%j becomes %j', (pieces, text, leaves) => {
  expect(typed(...pieces)).toEqual({ text, leaves })
})
