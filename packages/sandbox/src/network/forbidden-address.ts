import { BlockList, isIPv4 } from 'node:net'
import { networkInterfaces } from 'node:os'
import { normaliseHost } from './network-policy.ts'

/** Where no public service is: this network, private and shared ranges, loopback, link-local with its metadata services … */
const IPV4: [string, number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['168.63.129.16', 32], // Azure's host services: metadata in the middle of public space.
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3], // Multicast, reserved and broadcast.
]
/** Of the global range 2000::/3, outside which everything is forbidden: protocol assignments with Teredo, documentation. */
const IPV6: [string, number][] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['3fff::', 20],
]

const forbidden = new BlockList()
for (const [network, prefix] of IPV4) forbidden.addSubnet(network, prefix, 'ipv4')
for (const [network, prefix] of IPV6) forbidden.addSubnet(network, prefix, 'ipv6')

/**
 * Whether an address is one that only a policy naming its host may reach: not public, or the host's own. IPv6
 * addresses that stand for an IPv4 address (mapped, NAT64, 6to4) are judged as that one.
 */
export function isForbiddenAddress(address: string, ownAddresses: readonly string[] = []): boolean {
  if (isIPv4(address)) return ownAddresses.includes(address) || forbidden.check(address, 'ipv4')
  const canonical = normaliseHost(`[${address}]`)
  if (!canonical || ownAddresses.includes(canonical)) return true
  const groups = groupsOf(canonical)
  const embedded = embeddedIpv4(groups)
  if (embedded) return isForbiddenAddress(embedded, ownAddresses)
  const isGlobal = ((groups[0] ?? 0) & 0xe000) === 0x2000
  return !isGlobal || forbidden.check(canonical, 'ipv6')
}

/** Loopback, link-local with its metadata services, and this host: no name leads there, whoever runs its DNS. */
const LOCAL: [string, number, 'ipv4' | 'ipv6'][] = [
  ['0.0.0.0', 8, 'ipv4'],
  ['127.0.0.0', 8, 'ipv4'],
  ['168.63.129.16', 32, 'ipv4'],
  ['169.254.0.0', 16, 'ipv4'],
  ['::', 127, 'ipv6'],
  ['fe80::', 10, 'ipv6'],
]
const local = new BlockList()
for (const [network, prefix, family] of LOCAL) local.addSubnet(network, prefix, family)

/** Whether an address is so close that only a policy naming the address itself may reach it. */
export function isLocalAddress(address: string, ownAddresses: readonly string[] = []): boolean {
  if (isIPv4(address)) return ownAddresses.includes(address) || local.check(address, 'ipv4')
  const canonical = normaliseHost(`[${address}]`)
  if (!canonical || ownAddresses.includes(canonical)) return true
  const embedded = embeddedIpv4(groupsOf(canonical))
  return embedded ? isLocalAddress(embedded, ownAddresses) : local.check(canonical, 'ipv6')
}

/** The addresses of this host's interfaces: what listens there is not for sandboxes. */
export function ownAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address))
}

function groupsOf(canonical: string): number[] {
  const [left = [], right = []] = canonical.split('::').map((half) => half.split(':').filter(Boolean))
  const zeros = Array<string>(8 - left.length - right.length).fill('0')
  return [...left, ...zeros, ...right].map((group) => Number.parseInt(group, 16))
}

function embeddedIpv4(groups: number[]): string | undefined {
  const prefix = groups.slice(0, 6).join(':')
  if (prefix === '0:0:0:0:0:65535' || prefix === `${0x64}:${0xff9b}:0:0:0:0`) return toIpv4(groups.slice(6))
  if (groups[0] === 0x2002) return toIpv4(groups.slice(1, 3))
  return undefined
}

function toIpv4(groups: number[]): string {
  return groups.flatMap((group) => [group >> 8, group & 255]).join('.')
}
