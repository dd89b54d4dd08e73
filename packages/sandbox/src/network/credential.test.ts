import { expect, test } from 'vitest'
import {
  authenticate,
  credentialNameOf,
  formatCredentialHost,
  isCredentialName,
  parseCredentialHost,
} from './credential.ts'

test.each([
  ['api.test', 'api.test'],
  ['API.Test.', 'api.test'],
  ['api.test:443', 'api.test'],
  ['api.test:8443', 'api.test:8443'],
  ['http://api.test:8080', 'http://api.test:8080'],
  ['http://api.test:80', 'http://api.test:80'],
  ['[::1]:8443', '[::1]:8443'],
  ['0x7f.1:8443', '127.0.0.1:8443'],
])('the host %s is stored as %s', (text, stored) => {
  const host = parseCredentialHost(text)
  expect(host && formatCredentialHost(host)).toBe(stored)
})

test.each([
  '',
  '*.test',
  'http://api.test',
  'https://api.test',
  'api.test/path',
  'http://api.test:80/path',
  'user@api.test',
  'http://user@api.test:80',
  'api.test:0',
  'api.test:99999',
  'a b',
  'github.credentials.ash',
  'credentials.ash:8443',
  'api.test\n',
])('%j is not a host for a credential', (text) => {
  expect(parseCredentialHost(text)).toBeUndefined()
})

test.each([
  ['github.credentials.ash', 'github'],
  ['a-1.credentials.ash', 'a-1'],
  ['credentials.ash', undefined],
  ['a.b.credentials.ash', undefined],
])('%s is reserved and names %s', (host, name) => {
  expect(isCredentialName(host)).toBe(true)
  expect(credentialNameOf(host)).toBe(name)
})

test.each(['ash', 'xcredentials.ash', 'github.credentials.ash.evil.test', 'github-credentials.ash'])(
  '%s is a name like any other',
  (host) => expect(isCredentialName(host)).toBe(false),
)

const request = {
  path: '/a?b=c',
  headers: {
    authorization: ['Bearer own'],
    cookie: ['a=b'],
    'x-api-key': ['own'],
    x_api_key: ['own'],
    accept: ['*/*'],
  },
}

test.each([
  [
    { type: 'bearer' } as const,
    { authorization: ['Bearer s&cret'], 'x-api-key': ['own'], x_api_key: ['own'] },
  ],
  [{ type: 'header', name: 'X-Api-Key' } as const, { 'X-Api-Key': ['s&cret'] }],
  [
    { type: 'basic', username: 'me' } as const,
    { authorization: [`Basic ${btoa('me:s&cret')}`], 'x-api-key': ['own'], x_api_key: ['own'] },
  ],
])('%j replaces what the sandbox sent in its place', (scheme, headers) => {
  expect(authenticate({ scheme, secret: 's&cret' }, request)).toEqual({
    path: '/a?b=c',
    headers: { accept: ['*/*'], ...headers },
  })
})

test.each([
  ['/a', '/a?k%20y=s%26cret'],
  ['/a?', '/a?k%20y=s%26cret'],
  ['/a?b=c&k%20y=own&d', '/a?b=c&d&k%20y=s%26cret'],
  ['/a?k+y=own', '/a?k%20y=s%26cret'],
  ['/a?%6b%20%79=own&k%20y', '/a?k%20y=s%26cret'],
  ['/a?b=%zz?x', '/a?b=%zz?x&k%20y=s%26cret'],
])('as a parameter it is the only one of its name: %s', (path, sent) => {
  const scheme = { type: 'query', name: 'k y' } as const
  expect(authenticate({ scheme, secret: 's&cret' }, { path, headers: {} }).path).toBe(sent)
})
