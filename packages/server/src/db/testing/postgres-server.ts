import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import pg from 'pg'

export interface PostgresDatabase {
  url: string
  drop(): Promise<void>
}

/** A PostgreSQL of our own. It ends with this process, at the latest. */
export class PostgresServer {
  readonly #port: number

  static async start(): Promise<PostgresServer> {
    const keeper = fileURLToPath(new URL('./postgres-keeper.ts', import.meta.url))
    // Detached, so that Ctrl-C at a terminal leaves it the time to clean up.
    const child = spawn(process.execPath, [keeper], { stdio: 'pipe', detached: true })
    const problem = child.stderr.toArray()
    const [line] = await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])
    if (child.exitCode !== null)
      throw new Error(
        Buffer.concat(await problem)
          .toString()
          .trim(),
      )
    for (const handle of [child, child.stdin, child.stdout, child.stderr]) unref(handle)
    return new PostgresServer(Number(line))
  }

  private constructor(port: number) {
    this.#port = port
  }

  /** A new, empty database. */
  async createDatabase(name: string): Promise<PostgresDatabase> {
    await this.#administer(`create database ${pg.escapeIdentifier(name)}`)
    return {
      url: `postgres://postgres@127.0.0.1:${this.#port}/${name}`,
      drop: () => this.#administer(`drop database ${pg.escapeIdentifier(name)} with (force)`),
    }
  }

  async #administer(statement: string): Promise<void> {
    const client = new pg.Client({
      host: '127.0.0.1',
      port: this.#port,
      user: 'postgres',
      database: 'postgres',
    })
    await client.connect()
    try {
      await client.query(statement)
    } finally {
      await client.end()
    }
  }
}

/** Nobody waits for the keeper: that this process ends is what it waits for. */
function unref(handle: object): void {
  if ('unref' in handle && typeof handle.unref === 'function') handle.unref()
}
