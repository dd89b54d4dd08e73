import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Packages } from './package-schemas.ts'
import { SessionCreate } from './session-schemas.ts'

const accepts = (kind: 'pip' | 'npm', spec: string) => Packages.safeParse({ [kind]: [spec] }).success

test.each([
  'requests',
  'ruamel.yaml',
  'zope-interface_2',
  'requests==2.31.0',
  'uvicorn[standard,extra]>=0.30,<1,!=0.31.*',
  'torch==2.1.0+cpu',
  'x~=1.0',
])('pip: %j is a name with a range', (spec) => {
  expect(accepts('pip', spec)).toBe(true)
})

test.each([
  'left-pad',
  'left-pad@1.3.0',
  '@scope/name',
  '@scope/name@^1.2.3-beta.1',
  'a@latest',
  'a@>=1.0.0 <2.0.0',
  'a@1.x || 2.x',
  'a@*',
])('npm: %j is a name with a range', (spec) => {
  expect(accepts('npm', spec)).toBe(true)
})

test.each([
  '',
  '-r',
  '--index-url=http://x',
  '.',
  './local',
  '/etc/passwd',
  '../up',
  'a b',
  'a @ http://x/y.whl',
  'git+https://x/y',
  'https://x/y.tgz',
  'file:x',
  'a@file:x',
  'a@npm:b@1',
  'owner/repository',
  '@-x/y',
  "a'",
  'a"',
  'a`id`',
  'a$(id)',
  'a;id',
  'a&id',
  'a|id',
  'a\nb',
  'a\\b',
  'a==1;python_version<"3"',
  'a>=',
  'a@',
  'é',
  'a'.repeat(201),
])('%j is neither for pip nor for npm', (spec) => {
  expect([accepts('pip', spec), accepts('npm', spec)]).toEqual([false, false])
})

test('what is accepted is one word in single quotes, is no option, and names no place', () => {
  const part = fc.constantFrom(...'ab1.-_@/\\\'"`$;&|<>=!~^*+,:[] \n', 'http://', '--', '==', ' || ')
  fc.assert(
    fc.property(fc.constantFrom('pip' as const, 'npm' as const), fc.array(part), (kind, parts) => {
      const spec = parts.join('')
      if (!accepts(kind, spec)) return
      expect(spec).not.toMatch(/^-|^[./~]|['"`$;&\\\n:]|\/.*\//)
    }),
    { numRuns: 5_000 },
  )
})

test('there is no other kind of package, and not too many', () => {
  expect(Packages.safeParse({ cargo: ['x'] }).success).toBe(false)
  expect(Packages.safeParse({ pip: Array(101).fill('x') }).success).toBe(false)
  expect(SessionCreate.safeParse({ template: 'a', packages: { pip: ['-x'] } }).success).toBe(false)
})
