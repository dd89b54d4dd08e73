import { access, constants } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { Config } from '../config.ts'
import { openPostgresPool } from '../db/postgres-pool.ts'
import { locateRuntime } from '../locate-runtime.ts'
import { fail, isRoot, messageOf, ok, type Verdict, warn } from './finding.ts'

const OLDEST_NODE_MAJOR = 24
const PROBE_TIMEOUT_MS = 3000

export async function checkNode(version = process.versions.node): Promise<Verdict> {
  if (Number.parseInt(version, 10) >= OLDEST_NODE_MAJOR) return ok(`${version} (${process.execPath})`)
  return fail(`${version} is too old: ${OLDEST_NODE_MAJOR} or newer is needed`, 'npm run setup')
}

export async function checkProvider({ provider }: Pick<Config, 'provider'>): Promise<Verdict> {
  if (provider === 'bwrap') return ok('bwrap')
  const who = isRoot() ? 'root' : "the server's own user"
  return warn(
    `ASH_PROVIDER=${provider}: no isolation, agents run as ${who} and see the host`,
    'Unset ASH_PROVIDER for anything but development',
  )
}

export async function checkUser({
  sandboxUids: { base, count },
}: Pick<Config, 'sandboxUids'>): Promise<Verdict> {
  if (isRoot()) return ok(`root: each session gets a host user of its own, ${base} to ${base + count - 1}`)
  return warn(
    `uid ${process.getuid?.() ?? 'unknown'}: sessions share this host user, namespaces alone keep them apart`,
    'For a host user per session, run the server as root: sudo ash start',
  )
}

export async function checkRuntime({ bridgeEntry }: Pick<Config, 'bridgeEntry'>): Promise<Verdict> {
  try {
    const source = locateRuntime(bridgeEntry)
    for (const file of [source.node, source.bridge, source.claude]) await access(file, constants.R_OK)
    return ok('Node, bridge and claude are in place')
  } catch (error) {
    const isDenied = (error as NodeJS.ErrnoException).code === 'EACCES'
    const fix = isDenied
      ? 'Let the user of the server read the checkout: chmod -R o+rX <checkout>'
      : 'npm run setup'
    return fail(messageOf(error), fix)
  }
}

export async function checkPort({ host, port }: Pick<Config, 'host' | 'port'>): Promise<Verdict> {
  if (port === 0) return ok('ASH_PORT=0: any free one')
  const code = await tryListen(host, port)
  if (code === undefined) return ok(`${host}:${port} is free`)
  if (code === 'EADDRINUSE') {
    const version = await findAsh(host, port)
    if (version !== undefined) return ok(`${host}:${port} is served by a running Ash ${version}`)
    const other = port < 65_436 ? port + 100 : 4200
    return fail(`${host}:${port} is taken by another program`, `ASH_PORT=${other} ash start`)
  }
  if (code === 'EACCES')
    return fail(`this user may not listen on port ${port}`, 'Set ASH_PORT to 1024 or more')
  return fail(`cannot listen on ${host}:${port} (${code})`, 'Set ASH_HOST to an address of this machine')
}

export async function checkDatabase({ databaseUrl }: Partial<Pick<Config, 'databaseUrl'>>): Promise<Verdict> {
  if (databaseUrl === undefined) return ok('SQLite in the data directory')
  try {
    const pool = await openPostgresPool(databaseUrl, 1)
    await pool.end()
    return ok('Postgres answers')
  } catch (error) {
    return fail(messageOf(error), 'Start Postgres, or correct ASH_DATABASE_URL; without it Ash uses SQLite')
  }
}

/** Whether there is a key, not whether it is right: that would cost a request. */
export async function checkModel({ model }: Pick<Config, 'model'>): Promise<Verdict> {
  if (model.kind === 'offline') {
    return warn(
      'no key: an offline model answers, and says so',
      'export ANTHROPIC_API_KEY=…, then start the server',
    )
  }
  // The host alone: an address can hold a password.
  const { host } = new URL(model.baseUrl)
  const hasKey = model.apiKey !== undefined || model.authToken !== undefined
  return ok(
    `${host}, ${hasKey ? 'with a key (not tried)' : 'without a key: ANTHROPIC_BASE_URL alone is set'}`,
  )
}

/** The code of the error, if it fails. */
async function tryListen(host: string, port: number): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>()
  const server = createServer()
  server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
  server.listen({ host, port }, () => server.close(() => resolve(undefined)))
  return promise
}

/** The version of the Ash that answers there, if one does. */
async function findAsh(host: string, port: number): Promise<string | undefined> {
  const reachable =
    { '0.0.0.0': '127.0.0.1', '::': '[::1]' }[host] ?? (host.includes(':') ? `[${host}]` : host)
  try {
    const reply = await fetch(`http://${reachable}:${port}/health`, {
      headers: { connection: 'close' },
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
    })
    const health: unknown = await reply.json()
    const isAsh =
      typeof health === 'object' && health !== null && 'isolation' in health && 'version' in health
    return isAsh ? String(health.version) : undefined
  } catch {
    return undefined // Not HTTP, not JSON, or silent: not Ash.
  }
}
