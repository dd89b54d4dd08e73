import type { IncomingMessage } from 'node:http'
import { expect, test } from 'vitest'
import { headersInside, headersOutside } from './preview-headers.ts'

const base = new URL('http://localhost:4101')
const target = { sessionId: '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10', port: 3000 }
const own = `http://3000-${target.sessionId}.localhost:4101`

/** As much of a message as is looked at. */
function message(rawHeaders: string[]): IncomingMessage {
  const headers: Record<string, string> = {}
  for (let at = 0; at < rawHeaders.length; at += 2)
    headers[rawHeaders[at]?.toLowerCase() ?? ''] = rawHeaders[at + 1] ?? ''
  return { rawHeaders, headers, socket: { remoteAddress: '192.0.2.7' } } as unknown as IncomingMessage
}

function inside(rawHeaders: string[], hasKey = false): Record<string, string | undefined> {
  const admission = { tenantId: 'default', mayWake: false, path: '/', hasKey }
  const flat = headersInside(message(rawHeaders), target, admission, base)
  return Object.fromEntries(flat.flatMap((name, at) => (at % 2 ? [] : [[name.toLowerCase(), flat[at + 1]]])))
}

test('a program inside is addressed as on its own machine', () => {
  const headers = inside(['Host', own.slice(7), 'Origin', own, 'Accept', '*/*'])
  expect(headers).toEqual({
    host: 'localhost:3000',
    origin: 'http://localhost:3000',
    accept: '*/*',
    'x-forwarded-for': '192.0.2.7',
    'x-forwarded-host': own.slice(7),
    'x-forwarded-proto': 'http',
  })
  expect(inside(['Host', 'x', 'Origin', 'https://example.com']).origin).toBe('https://example.com')
})

test('nothing of Ash goes inside; what is the program’s own does', () => {
  const cookies = 'a=1; ash_preview=token; __Host-ash_preview=token; ash_preview2=b'
  expect(inside(['Cookie', cookies]).cookie).toBe('a=1; ash_preview2=b')
  expect(inside(['Cookie', 'ash_preview=token'])).not.toHaveProperty('cookie')
  expect(inside(['Authorization', 'Bearer key'], true)).not.toHaveProperty('authorization')
  expect(inside(['Authorization', 'Bearer own']).authorization).toBe('Bearer own')
})

test('what concerns two neighbours only ends here', () => {
  const headers = inside([
    ...['Connection', 'keep-alive, X-Hop', 'Keep-Alive', 'timeout=5', 'X-Hop', '1', 'TE', 'trailers'],
    ...[
      'Proxy-Authorization',
      'Basic x',
      'Upgrade',
      'h2c',
      'Transfer-Encoding',
      'chunked',
      'Expect',
      '100-continue',
    ],
    ...['X-Forwarded-For', '203.0.113.1', 'X-Forwarded-Proto', 'https'],
  ])
  expect(headers).toEqual({
    host: 'localhost:3000',
    'transfer-encoding': 'chunked',
    'x-forwarded-for': '203.0.113.1, 192.0.2.7',
    'x-forwarded-host': '',
    'x-forwarded-proto': 'https',
  })
})

const outside = (...rawHeaders: string[]) => headersOutside(message(rawHeaders), target)

test.each([
  ['http://localhost:3000/login?a=b', '/login?a=b'],
  ['http://127.0.0.1:3000', '/'],
  ['/there', '/there'],
  ['http://localhost:30001/', 'http://localhost:30001/'],
  ['https://example.com/', 'https://example.com/'],
])('a redirect to %s leads to %s', (location, seen) => {
  expect(outside('Location', location)).toEqual(['Location', seen])
})

test('an answer keeps its headers, in their order and as often as they come', () => {
  const kept = ['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2; Path=/', 'X-Any', 'thing']
  expect(outside(...kept, 'Transfer-Encoding', 'chunked', 'Connection', 'close')).toEqual(kept)
  expect(outside('Set-Cookie', 'ash_preview=mine; Path=/')).toEqual([])
})
