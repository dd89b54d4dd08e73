import { isAshError } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { openPreview, type PreviewClaims, signPreview } from './preview-links.ts'

const key = Buffer.alloc(32, 7)
const target = { sessionId: '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10', port: 3000 }
const claims: PreviewClaims = {
  ...target,
  tenantId: 'default',
  mayWake: false,
  expiresAtMs: Date.now() + 60_000,
}

function isForbidden(open: () => unknown): boolean {
  try {
    open()
    return false
  } catch (error) {
    return isAshError(error, 'forbidden')
  }
}

test('a link opens as what it was made for', () => {
  expect(openPreview(key, signPreview(key, claims), target)).toEqual(claims)
})

test('not for another port or session, not after its time, not with another key', () => {
  const token = signPreview(key, claims)
  expect(isForbidden(() => openPreview(key, token, { ...target, port: 3001 }))).toBe(true)
  const other = { ...target, sessionId: target.sessionId.replace('0', '1') }
  expect(isForbidden(() => openPreview(key, token, other))).toBe(true)
  const late = signPreview(key, { ...claims, expiresAtMs: Date.now() })
  expect(isForbidden(() => openPreview(key, late, target))).toBe(true)
  expect(isForbidden(() => openPreview(Buffer.alloc(32, 8), token, target))).toBe(true)
})

test('not when a single character differs', () => {
  const token = signPreview(key, claims)
  // The last character holds bits that are no part of the bytes.
  for (let at = 0; at < token.length - 1; at++) {
    const changed = token.slice(0, at) + (token[at] === 'A' ? 'B' : 'A') + token.slice(at + 1)
    expect(isForbidden(() => openPreview(key, changed, target))).toBe(true)
  }
  for (const odd of ['', '.', 'a.b', `${token}.`, token.replace('.', '')])
    expect(isForbidden(() => openPreview(key, odd, target))).toBe(true)
})
