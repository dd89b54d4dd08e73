import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { chown, mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'

const run = promisify(execFile)
const START_ATTEMPTS = 400
const START_POLL_MS = 10

/** A PostgreSQL of its own in a temporary folder. It dies with this process. */
export interface PostgresServer {
  /** A new, empty database. */
  createDatabase(name: string): Promise<{ url: string; drop(): Promise<void> }>
  stop(): Promise<void>
}

export async function startPostgres(): Promise<PostgresServer> {
  const bin = await findBinaries()
  const dir = await makeFolder()
  const port = await findFreePort()
  await run(...asDatabaseUser(join(bin, 'initdb'), [...INITDB, '-D', dir]), { cwd: dir })
  const [command, args] = asDatabaseUser(join(bin, 'postgres'), serverArguments(dir, port))
  const child = spawn(command, args, { cwd: dir, stdio: 'ignore' })
  const admin = await connect(port, child)
  return {
    createDatabase: (name) => createDatabase(admin, port, name),
    stop: async () => {
      await admin.end()
      await stop(child)
      await rm(dir, { recursive: true, force: true })
    },
  }
}

async function findBinaries(): Promise<string> {
  try {
    const { stdout } = await run('pg_config', ['--bindir'])
    const bin = stdout.trim()
    await run(join(bin, 'postgres'), ['--version'])
    return bin
  } catch (error) {
    throw new Error('The database tests need PostgreSQL: apt-get install postgresql', { cause: error })
  }
}

const INITDB = ['-U', 'postgres', '-A', 'trust', '--no-sync', '--locale=C', '-E', 'UTF8']

function serverArguments(dir: string, port: number): string[] {
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

const isRoot = process.getuid?.() === 0
const NOBODY = { uid: 65_534, gid: 65_534 }

/** PostgreSQL refuses to run as root. On Linux it is told to stop when this process dies, however it dies. */
function asDatabaseUser(program: string, args: string[]): [string, string[]] {
  if (process.platform !== 'linux') return [program, args]
  const user = isRoot ? [`--reuid=${NOBODY.uid}`, `--regid=${NOBODY.gid}`, '--clear-groups'] : []
  return ['setpriv', [...user, '--pdeathsig', 'INT', program, ...args]]
}

async function makeFolder(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-postgres-'))
  if (isRoot) await chown(dir, NOBODY.uid, NOBODY.gid)
  return dir
}

async function findFreePort(): Promise<number> {
  const probe = createServer()
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve))
  const address = probe.address()
  await new Promise((resolve) => probe.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}

async function connect(port: number, child: ChildProcess): Promise<pg.Client> {
  for (let attempt = 0; attempt < START_ATTEMPTS && child.exitCode === null; attempt++) {
    const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' })
    try {
      await client.connect()
      return client
    } catch {
      await sleep(START_POLL_MS)
    }
  }
  await stop(child)
  throw new Error(`PostgreSQL did not start (exit code ${child.exitCode})`)
}

async function createDatabase(admin: pg.Client, port: number, name: string) {
  await admin.query(`create database ${admin.escapeIdentifier(name)}`)
  return {
    url: `postgres://postgres@127.0.0.1:${port}/${name}`,
    drop: async () => {
      await admin.query(`drop database ${admin.escapeIdentifier(name)} with (force)`)
    },
  }
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGINT')
  await exited
}
