import { Resolver } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'

const QUERY_TIMEOUT_MS = 2_000
const TRIES = 2

/**
 * All addresses of a host, from /etc/hosts or else DNS. Not `dns.lookup`: that holds one of the process's four
 * worker threads, and a sandbox that asks for names with slow servers would stop the file system for everyone. So
 * there are no search domains: names are complete.
 */
export async function resolveHost(host: string, { servers }: { servers?: string[] } = {}): Promise<string[]> {
  if (isIP(host)) return [host]
  const known = await inHostsFile(host)
  if (known.length > 0) return known
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, tries: TRIES })
  if (servers) resolver.setServers(servers)
  const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)])
  const addresses = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []))
  const failed = answers.find((answer) => answer.status === 'rejected')
  if (addresses.length === 0 && failed) throw failed.reason
  return addresses
}

async function inHostsFile(host: string): Promise<string[]> {
  const text = await readFile('/etc/hosts', 'utf8').catch(() => '')
  return text.split('\n').flatMap((line) => {
    const [address = '', ...names] = (line.split('#', 1)[0] ?? '').trim().toLowerCase().split(/\s+/)
    return isIP(address) && names.includes(host) ? [address] : []
  })
}
