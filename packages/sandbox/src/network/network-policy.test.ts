import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decide, formatAuthority, parseAuthority, parsePolicy } from './network-policy.ts'

const isAllowed = (hosts: string[], authority: string) => {
  const destination = parseAuthority(authority)
  return destination !== undefined && decide(parsePolicy(hosts), destination).allowed
}

describe('an allowlist', () => {
  test.each([
    [['example.com'], 'example.com:443', true],
    [['example.com'], 'example.com:80', true],
    [['example.com'], 'example.com:8443', false],
    [['example.com'], 'www.example.com:443', false],
    [['example.com'], 'example.com.evil.test:443', false],
    [['example.com'], 'notexample.com:443', false],
    [['example.com:8443'], 'example.com:8443', true],
    [['example.com:8443'], 'example.com:443', false],
    [['*.example.com'], 'a.example.com:443', true],
    [['*.example.com'], 'a.b.example.com:443', true],
    [['*.example.com'], 'example.com:443', false],
    [['*.example.com'], 'aexample.com:443', false],
    [['*.example.com'], 'a.example.com:22', false],
    [['*.example.com:22'], 'a.example.com:22', true],
    [['10.0.0.5'], '10.0.0.5:80', true],
    [['10.0.0.5:5432'], '10.0.0.5:5432', true],
    [['10.0.0.5'], '[::ffff:10.0.0.5]:80', false],
    [['[2606:4700::1111]:853'], '[2606:4700:0:0::1111]:853', true],
    [[], 'example.com:443', false],
  ])('%j and %s: %s', (hosts, authority, expected) => {
    expect(isAllowed(hosts, authority)).toBe(expected)
  })

  test.each([['Example.COM'], ['example.com.'], ['ｅｘａｍｐｌｅ.com'], ['exam\u00adple.com']])(
    '%j is example.com',
    (host) => {
      expect(isAllowed(['example.com'], `${host}:443`)).toBe(true)
      expect(isAllowed([host], 'example.com:443')).toBe(true)
    },
  )

  test('an international name is the same in both spellings', () => {
    expect(isAllowed(['bücher.example'], 'xn--bcher-kva.example:443')).toBe(true)
  })

  test('only an entry that is exactly the host names it', () => {
    const policy = parsePolicy(['*.corp', 'db.corp:5432'])
    expect(decide(policy, { host: 'db.corp', port: 5432 })).toMatchObject({ allowed: true, isNamed: true })
    expect(decide(policy, { host: 'db.corp', port: 443 })).toMatchObject({ allowed: true, isNamed: false })
    expect(decide(parsePolicy('open'), { host: 'db.corp', port: 1 })).toMatchObject({ isNamed: false })
  })

  test('only an entry with a port admits every protocol', () => {
    const policy = parsePolicy(['*.example.com', 'ssh.example.com:443'])
    expect(decide(policy, { host: 'a.example.com', port: 443 })).toMatchObject({ isAnyProtocol: false })
    expect(decide(policy, { host: 'ssh.example.com', port: 443 })).toMatchObject({ isAnyProtocol: true })
  })
})

test.each([
  ['0x7f.1', '127.0.0.1'],
  ['2130706433', '127.0.0.1'],
  ['0177.0.0.1', '127.0.0.1'],
  ['127.1', '127.0.0.1'],
  ['127.0.0.1.', '127.0.0.1'],
  ['１２７.0.0.1', '127.0.0.1'],
  ['0xA9FEA9FE', '169.254.169.254'],
  ['[0:0:0:0:0:0:0:1]', '::1'],
  ['[::FFFF:127.0.0.1]', '::ffff:7f00:1'],
])('%s is the address %s', (spelling, address) => {
  expect(parseAuthority(`${spelling}:80`)).toEqual({ host: address, port: 80 })
})

test.each([
  '',
  ':80',
  'example.com',
  'example.com:',
  'example.com:0',
  'example.com:65536',
  'example.com:+80',
  'example.com:80:80',
  'user@example.com:80',
  'example.com/x:80',
  'example.com\\x:80',
  'exa mple.com:80',
  'exa\tmple.com:80',
  'exa\nmple.com:80',
  'example.com\0.evil.test:80',
  'example%2ecom:80',
  'example..com:80',
  'example.com..:80',
  '-x.com:80',
  '1.2.3.4.5:80',
  '1.2.3.256:80',
  '::1:80',
  '[::1:80',
  '[fe80::1%25eth0]:80',
  '[::1]x:80',
  `${'a'.repeat(64)}.com:80`,
  `${'a.'.repeat(130)}com:80`,
])('%j is no host and port', (authority) => {
  expect(parseAuthority(authority)).toBeUndefined()
})

test('what is read is one spelling, whatever comes in', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.domain(), fc.ipV4Extended(), fc.ipV6()), (host) => {
      const destination = parseAuthority(`${host.includes('::') ? `[${host}]` : host}:443`)
      if (destination) expect(parseAuthority(formatAuthority(destination))).toEqual(destination)
    }),
  )
})

test.each([
  ['*'],
  ['*.'],
  ['*.*.com'],
  ['a.*.com'],
  ['https://example.com'],
  ['example.com/path'],
  ['example.com:http'],
  ['*.10.0.0.1'],
  ['::1'],
  [''],
  [' example.com'],
])('the entry %j is refused by name', (entry) => {
  expect(() => parsePolicy(['example.com', entry])).toThrow(JSON.stringify(entry))
})

test('other settings are refused', () => {
  expect(() => parsePolicy('closed' as 'none')).toThrow('"closed"')
  expect(() => parsePolicy(Array.from({ length: 1_001 }, (_, index) => `h${index}.test`))).toThrow('1001')
})

test.each([
  ['none', { host: 'api.example.com', port: 443 }, 'network: ["api.example.com"]'],
  ['none', { host: 'api.example.com', port: 8443 }, 'network: ["api.example.com:8443"]'],
  [['a.test'], { host: '::1', port: 9 }, 'network: ["[::1]:9"]'],
] as const)('a denial under %j names the setting that allows it', (setting, destination, expected) => {
  const decision = decide(parsePolicy(setting === 'none' ? setting : [...setting]), destination)
  expect(decision).toMatchObject({ allowed: false, setting: expected })
  const [, entry = ''] = /"(.*)"/.exec(expected) ?? []
  expect(decide(parsePolicy([entry]), destination).allowed).toBe(true)
})
