import { expect, test } from 'vitest'
import { parsePreviewHost, previewOrigin } from './preview-address.ts'

const sessionId = '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10'
const local = new URL('http://localhost:4101')
const wildcard = new URL('https://preview.example.com')

test.each([
  [local, 3000, `http://3000-${sessionId}.localhost:4101`],
  [wildcard, 65_535, `https://65535-${sessionId}.preview.example.com`],
])('below %s port %i is %s, and is found again', (base, port, origin) => {
  expect(previewOrigin(base, { sessionId, port })).toBe(origin)
  expect(parsePreviewHost(base, new URL(origin).host)).toEqual({ sessionId, port })
})

test('the case of a name says nothing, and neither does the port it is reached by', () => {
  const host = `80-${sessionId.toUpperCase()}.LOCALHOST:9999`
  expect(parsePreviewHost(local, host)).toEqual({ sessionId, port: 80 })
})

test.each([
  undefined,
  '',
  'localhost:4101',
  '127.0.0.1:4101',
  `3000-${sessionId}`,
  `3000-${sessionId}.example.com`,
  `3000-${sessionId}.evil.localhost`,
  `3000-${sessionId}.localhost.evil.com`,
  `x.3000-${sessionId}.localhost`,
  `0-${sessionId}.localhost`,
  `65536-${sessionId}.localhost`,
  `3000-${sessionId}x.localhost`,
  `-${sessionId}.localhost`,
  `3000-${sessionId}.localhost:4101:1`,
  `3000-${sessionId}.localhost/`,
])('no preview is at %s', (host) => {
  expect(parsePreviewHost(local, host)).toBeUndefined()
})
