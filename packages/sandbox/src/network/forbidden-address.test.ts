import { expect, test } from 'vitest'
import { isForbiddenAddress, isLocalAddress, ownAddresses } from './forbidden-address.ts'

test.each([
  '0.0.0.0',
  '10.255.0.1',
  '100.64.0.1',
  '100.100.100.200',
  '127.0.0.1',
  '127.255.255.254',
  '168.63.129.16',
  '169.254.169.254',
  '172.16.0.1',
  '172.31.255.255',
  '192.0.0.192',
  '192.168.1.1',
  '198.18.0.1',
  '224.0.0.1',
  '240.0.0.1',
  '255.255.255.255',
  '::',
  '::1',
  '::ffff:127.0.0.1',
  '::ffff:a9fe:a9fe',
  '::127.0.0.1',
  '::ffff:0:127.0.0.1',
  '64:ff9b::10.0.0.1',
  '64:ff9b:1::8.8.8.8',
  '2002:7f00:1::1',
  '2002:c0a8:101::',
  '2001:0:4136:e378:8000:63bf:3fff:fdd2',
  '2001:db8::1',
  '100::1',
  'fc00::1',
  'fd00:ec2::254',
  'fe80::1',
  'fe80::1%eth0',
  'fec0::1',
  'ff02::1',
  'not an address',
])('%s is not for sandboxes', (address) => {
  expect(isForbiddenAddress(address)).toBe(true)
})

test.each([
  '1.1.1.1',
  '93.184.216.34',
  '172.15.255.255',
  '172.32.0.1',
  '100.128.0.1',
  '192.167.0.1',
  '2606:4700:4700::1111',
  '2a00:1450:4001:81b::200e',
  '::ffff:1.1.1.1',
  '64:ff9b::1.1.1.1',
  '2002:101:101::1',
])('%s is public', (address) => {
  expect(isForbiddenAddress(address)).toBe(false)
})

test('the host’s own addresses are not for sandboxes, however they are written', () => {
  const own = ['93.184.216.34', '2606:4700::1']
  for (const address of ['93.184.216.34', '::ffff:93.184.216.34', '2606:4700:0::1', '64:ff9b::5db8:d822'])
    expect(isForbiddenAddress(address, own)).toBe(true)
  expect(isForbiddenAddress('93.184.216.35', own)).toBe(false)
  expect(ownAddresses()).toContain('127.0.0.1')
})

test.each([
  ['127.0.0.1', true],
  ['127.9.9.9', true],
  ['0.0.0.0', true],
  ['169.254.169.254', true],
  ['168.63.129.16', true],
  ['::1', true],
  ['::', true],
  ['fe80::1', true],
  ['::ffff:127.0.0.1', true],
  ['64:ff9b::7f00:1', true],
  ['10.0.0.1', false],
  ['192.168.1.1', false],
  ['fd00::1', false],
  ['93.184.216.34', false],
  ['2606:2800::1', false],
])('a name may lead to %s: only if it is not local (%s)', (address, expected) => {
  expect(isLocalAddress(address)).toBe(expected)
})

test('the addresses of this host are local', () => {
  expect(isLocalAddress('10.1.2.3', ['10.1.2.3'])).toBe(true)
})
