import { readdir, readFile, readlink } from 'node:fs/promises'
import type { Port } from '@ash-ai/shared'

const MAX_PORTS = 256
const MAX_COMMAND_CHARS = 200
/** Looked at to find out whose a port is. More than that, and some belong to nobody that can be told. */
const MAX_DESCRIPTORS = 50_000

/** A line of the kernel's table of TCP sockets. */
interface Listener {
  port: number
  address: string
  inode: string
}

/** The TCP ports of this network namespace on which something listens, without those named. */
export async function listListeningPorts(without: ReadonlySet<number>): Promise<Port[]> {
  const tables = await Promise.all(['tcp', 'tcp6'].map((name) => readText(`/proc/net/${name}`)))
  const found = tables
    .flatMap((table) => parseListeners(table))
    .filter(({ port }) => !without.has(port))
    .slice(0, MAX_PORTS)
  const owners = await findOwners(new Set(found.map(({ inode }) => inode)))
  const ports = found.map(({ port, address, inode }) => ({ port, address, ...owners.get(inode) }))
  return ports.sort((a, b) => a.port - b.port || (a.address < b.address ? -1 : 1))
}

const LISTEN = '0A'

/** Of `/proc/net/tcp` or `/proc/net/tcp6`, what listens. */
export function parseListeners(table: string): Listener[] {
  const listeners: Listener[] = []
  for (const line of table.split('\n').slice(1)) {
    const [, local = '', , state, , , , , , inode = ''] = line.trim().split(/\s+/)
    const [, address = '', port = ''] = /^([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})$/.exec(local) ?? []
    if (state === LISTEN && address !== '')
      listeners.push({ port: Number.parseInt(port, 16), address: toAddress(address), inode })
  }
  return listeners
}

/** The kernel writes addresses as 32-bit words in the order of this machine, which is little-endian wherever Ash runs. */
function toAddress(hex: string): string {
  const bytes = [...hex.matchAll(/(..)(..)(..)(..)/g)].flatMap(([, a, b, c, d]) => [d, c, b, a])
  const numbers = bytes.map((byte) => Number.parseInt(byte ?? '0', 16))
  if (numbers.length === 4) return numbers.join('.')
  const isMapped = /^0{20}f{4}/.test(bytes.join('').toLowerCase())
  if (isMapped) return numbers.slice(12).join('.')
  const words = Array.from({ length: 8 }, (_, index) => `${bytes[2 * index]}${bytes[2 * index + 1]}`)
  return new URL(`http://[${words.join(':')}]`).hostname.slice(1, -1)
}

type Owner = Pick<Port, 'pid' | 'command'>

/** Who holds these sockets, as far as the processes let themselves be looked at. */
async function findOwners(inodes: ReadonlySet<string>): Promise<Map<string, Owner>> {
  const owners = new Map<string, Owner>()
  let looked = 0
  for (const pid of await numbersIn('/proc')) {
    if (owners.size === inodes.size) break
    for (const fd of await numbersIn(`/proc/${pid}/fd`)) {
      if (++looked > MAX_DESCRIPTORS) return owners
      const link = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')
      const inode = /^socket:\[(\d+)\]$/.exec(link)?.[1]
      if (inode === undefined || !inodes.has(inode) || owners.has(inode)) continue
      owners.set(inode, { pid: Number(pid), command: await commandOf(pid) })
    }
  }
  return owners
}

async function numbersIn(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => [])
  return names.filter((name) => /^\d+$/.test(name))
}

async function commandOf(pid: string): Promise<string> {
  const line = await readText(`/proc/${pid}/cmdline`)
  return line.replaceAll('\0', ' ').trim().slice(0, MAX_COMMAND_CHARS)
}

const readText = (path: string) => readFile(path, 'utf8').catch(() => '')
