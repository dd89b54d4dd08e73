import { isAshError } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { SecretBox } from '../db/secret-box.ts'
import { type LinkClaims, openLink, signLink } from './file-links.ts'

const key = Buffer.alloc(32, 7)
const claims: LinkClaims = {
  tenantId: 'default',
  sessionId: '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10',
  path: 'a/ü.txt',
  method: 'GET',
  expiresAtMs: Date.now() + 60_000,
}
const isForbidden = (open: () => unknown) => {
  try {
    open()
    return false
  } catch (error) {
    return isAshError(error, 'forbidden')
  }
}

test('a link opens as what it was made for', () => {
  expect(openLink(key, signLink(key, claims), 'GET')).toEqual(claims)
})

test('not for another method, and not after its time', () => {
  expect(isForbidden(() => openLink(key, signLink(key, claims), 'PUT'))).toBe(true)
  expect(isForbidden(() => openLink(key, signLink(key, { ...claims, expiresAtMs: Date.now() }), 'GET'))).toBe(
    true,
  )
})

test('not with another key, and not when a single character differs', () => {
  const token = signLink(key, claims)
  expect(isForbidden(() => openLink(Buffer.alloc(32, 8), token, 'GET'))).toBe(true)
  // The last character holds bits that are no part of the bytes.
  for (let at = 0; at < token.length - 1; at++) {
    const other = token[at] === 'A' ? 'B' : 'A'
    const changed = token.slice(0, at) + other + token.slice(at + 1)
    expect(isForbidden(() => openLink(key, changed, 'GET'))).toBe(true)
  }
  for (const odd of ['', '.', 'a.b', `${token}.`, token.replace('.', ''), token.split('.')[0] ?? ''])
    expect(isForbidden(() => openLink(key, odd, 'GET'))).toBe(true)
})

test('not with the claims of another link', () => {
  const [body] = signLink(key, { ...claims, path: 'other' }).split('.')
  const [, mac] = signLink(key, claims).split('.')
  expect(isForbidden(() => openLink(key, `${body}.${mac}`, 'GET'))).toBe(true)
})

test('the key is the same after a restart, and another for another use', () => {
  const [before, after] = [new SecretBox(key), new SecretBox(key)]
  expect(openLink(after.deriveKey('links'), signLink(before.deriveKey('links'), claims), 'GET')).toEqual(
    claims,
  )
  expect(before.deriveKey('links')).not.toEqual(before.deriveKey('something else'))
  expect(before.deriveKey('links')).not.toEqual(key)
})
