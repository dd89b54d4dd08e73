import { expect, test } from 'vitest'
import { assertNoWebPage, isLoopback } from './keys-off.ts'

test.each([
  { host: 'localhost' },
  { host: 'localhost:4100' },
  { host: '127.0.0.1:4100' },
  { host: '[::1]:4100' },
  { host: 'localhost:4100', origin: 'http://localhost:4100' },
  { host: 'localhost:4100', 'sec-fetch-site': 'same-origin' },
  { host: 'localhost:4100', 'sec-fetch-site': 'none' },
])('%j is no web page of another site', (headers) => {
  assertNoWebPage(headers)
})

test.each([
  {},
  { host: '' },
  { host: 'evil.example' },
  { host: 'localhost.evil.example:4100' },
  { host: '127.0.0.1.evil.example' },
  { host: '10.0.0.1:4100' },
  { host: 'localhost:4100', origin: 'https://localhost:4100' },
  { host: 'localhost:4100', origin: 'http://127.0.0.1:4100' },
  { host: 'localhost:4100', origin: 'http://localhost:3000' },
  { host: 'localhost:4100', origin: 'http://3000-abc.localhost:4101' },
  { host: 'localhost:4100', origin: 'null' },
  { host: 'localhost:4100', origin: '' },
  { host: 'localhost:4100', 'sec-fetch-site': 'cross-site' },
  { host: 'localhost:4100', 'sec-fetch-site': 'same-site' },
  { host: 'localhost:4100', 'sec-fetch-site': 'none, cross-site' },
  { host: 'localhost:4100', 'x-forwarded-for': '203.0.113.9' },
  { host: 'localhost:4100', via: '1.1 proxy' },
])('%j is refused', (headers) => {
  expect(() => assertNoWebPage(headers)).toThrow('Authorization: Bearer')
})

test('loopback addresses are told from others', () => {
  for (const host of ['localhost', '127.0.0.1', '127.1.2.3', '::1']) expect(isLoopback(host), host).toBe(true)
  for (const host of ['0.0.0.0', '::', '10.0.0.1', 'localhost.example', '127.0.0.1.example'])
    expect(isLoopback(host), host).toBe(false)
})
