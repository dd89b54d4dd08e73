import { TemplateSettings } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { assertIndex, Dependencies, fromSpec, indexHosts, toPackages } from './dependencies.ts'

test.each([
  [{ name: 'requests' }, 'requests'],
  [{ name: 'requests', version: '2.31.0' }, 'requests==2.31.0'],
  [{ name: 'requests', version: '==2.31.0' }, 'requests==2.31.0'],
  [{ name: 'requests', version: '>=2,<3' }, 'requests>=2,<3'],
  [{ name: 'zope.interface', version: null }, 'zope.interface'],
])('%j is %s, which the installer takes', (dependency, spec) => {
  const packages = toPackages(Dependencies.parse([dependency]))
  expect(packages).toEqual({ pip: [spec] })
  expect(TemplateSettings.parse({ packages })).toEqual({ packages })
})

test.each([
  { name: '' },
  { name: '-r' },
  { name: '--index-url' },
  { name: 'a..b' },
  { name: '/etc/passwd' },
  { name: 'https://x/y' },
  { name: 'pandas2.3.3' },
  { name: 'a b' },
  { name: 'ok', version: '1; rm -rf /' },
  { name: 'ok', version: '--hash=x' },
  { name: 'ok', version: '==1 --pre' },
  { name: 'ok', version: " @ file:///'" },
])('%j is refused', (dependency) => {
  expect(Dependencies.safeParse([dependency]).success).toBe(false)
})

test.each(['~1', '=1', '!2'])('the version %s is none that the installer knows', (version) => {
  expect(() => toPackages([{ name: 'ok', version }])).toThrow('pip.0')
})

test('a spec is taken apart again', () => {
  expect(fromSpec('requests')).toEqual({ name: 'requests', version: null })
  expect(fromSpec('requests>=2,<3')).toEqual({ name: 'requests', version: '>=2,<3' })
})

test('packages come from the index of the operator alone', () => {
  const own = { pip: 'https://packages.example/simple' }
  assertIndex(own, 'https://packages.example/simple/')
  assertIndex(own, null)
  assertIndex({}, 'https://pypi.org/simple')
  expect(() => assertIndex(own, 'https://pypi.org/simple/')).toThrow('packages.example')
  expect(indexHosts(own)).toEqual(['packages.example'])
  expect(indexHosts({})).toContain('pypi.org')
})
