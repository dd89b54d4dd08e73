import { afterEach, expect, test, vi } from 'vitest'
import { openToken, signToken } from './terminal-tokens.ts'

const KEY = Buffer.alloc(32, 7)
const SESSION = '11111111-1111-4111-8111-111111111111'

afterEach(() => {
  vi.useRealTimers()
})

test('a token names its tenant, for its session, for a minute', () => {
  vi.useFakeTimers({ toFake: ['Date'] })
  const { token, expiresAt } = signToken(KEY, 'tenant-1', SESSION)
  expect(openToken(KEY, token, SESSION)).toBe('tenant-1')
  expect(new Date(expiresAt).getTime() - Date.now()).toBe(60_000)
  vi.setSystemTime(Date.now() + 59_999)
  expect(openToken(KEY, token, SESSION)).toBe('tenant-1')
  vi.setSystemTime(Date.now() + 1)
  expect(() => openToken(KEY, token, SESSION)).toThrow('has expired')
})

test('any other token is refused', () => {
  const { token } = signToken(KEY, 'tenant-1', SESSION)
  const [body = '', mac = ''] = token.split('.')
  const other = signToken(KEY, 'tenant-2', SESSION).token.split('.')[0]
  const refused = { code: 'unauthorized' }
  for (const wrong of ['', '.', body, `${body}.`, `${body}.${mac}.`, `${other}.${mac}`, `${token}x`, 'ü.ü'])
    expect(() => openToken(KEY, wrong, SESSION), wrong).toThrow(expect.objectContaining(refused))
  expect(() => openToken(Buffer.alloc(32, 8), token, SESSION)).toThrow(expect.objectContaining(refused))
  const elsewhere = SESSION.replace('1', '2')
  expect(() => openToken(KEY, token, elsewhere)).toThrow('is for another session')
})
