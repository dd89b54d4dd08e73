/**
 * Runs a PostgreSQL in a temporary folder for as long as its standard input stays open, then stops it and
 * removes the folder. A process of its own: test workers are killed without warning, and this outlives them
 * just long enough to clean up. Writes the port as one line once the server answers.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdtemp, readdir, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'

const run = promisify(execFile)
const START_TIMEOUT_MS = 15_000
const START_POLL_MS = 10
/** Debian keeps the programs of the server out of PATH. */
const DEBIAN_FOLDER = '/usr/lib/postgresql'
const NOBODY = { uid: 65_534, gid: 65_534 }
const isRoot = process.getuid?.() === 0

const bin = await findBinaries()
const dir = await makeFolder()
try {
  await keepRunning()
} finally {
  await rm(dir, { recursive: true, force: true })
}

async function findBinaries(): Promise<string> {
  const told = await run('pg_config', ['--bindir']).then(
    ({ stdout }) => [stdout.trim()],
    () => [],
  )
  const versions = await readdir(DEBIAN_FOLDER).catch(() => [])
  for (const folder of [...told, ...versions.map((version) => join(DEBIAN_FOLDER, version, 'bin'))]) {
    // Some have the tools of clients only.
    const isServer = await run(join(folder, 'postgres'), ['--version']).then(
      () => true,
      () => false,
    )
    if (isServer) return folder
  }
  process.stderr.write('The database tests need PostgreSQL: apt-get install postgresql\n')
  process.exit(1)
}

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-postgres-'))
  if (isRoot) await chown(folder, NOBODY.uid, NOBODY.gid)
  return folder
}

async function keepRunning(): Promise<void> {
  const initdb = ['-D', dir, '-U', 'postgres', '-A', 'trust', '--no-sync', '--locale=C', '-E', 'UTF8']
  await run(...asDatabaseUser('initdb', initdb), { cwd: dir })
  const port = await findFreePort()
  const server = spawn(...asDatabaseUser('postgres', serverArguments(port)), { cwd: dir, stdio: 'ignore' })
  try {
    await waitUntilReady(server, port)
    process.stdout.write(`${port}\n`)
    await once(process.stdin.resume(), 'end')
  } finally {
    await stop(server)
  }
}

function serverArguments(port: number): string[] {
  const settings = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: dir,
    fsync: 'off',
    synchronous_commit: 'off',
    full_page_writes: 'off',
  }
  return ['-D', dir, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])]
}

/** PostgreSQL refuses to run as root. On Linux it also ends when this process does, however that comes. */
function asDatabaseUser(program: string, args: string[]): [string, string[]] {
  if (process.platform !== 'linux') return [join(bin, program), args]
  const user = isRoot ? [`--reuid=${NOBODY.uid}`, `--regid=${NOBODY.gid}`, '--clear-groups'] : []
  return ['setpriv', [...user, '--pdeathsig', 'INT', join(bin, program), ...args]]
}

async function findFreePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const address = probe.address()
  probe.close()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}

async function waitUntilReady(server: ChildProcess, port: number): Promise<void> {
  const end = Date.now() + START_TIMEOUT_MS
  while (Date.now() < end && server.exitCode === null) {
    const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' })
    try {
      await client.connect()
      await client.end()
      return
    } catch {
      await sleep(START_POLL_MS)
    }
  }
  throw new Error(`PostgreSQL did not start (exit code ${server.exitCode})`)
}

async function stop(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null) return
  server.kill('SIGINT')
  await once(server, 'exit')
}
