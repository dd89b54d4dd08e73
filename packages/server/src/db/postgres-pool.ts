import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'

const INT8_OID = 20
const MAX_CONNECTIONS = 10
const CONNECT_TIMEOUT_MS = 5000
const CONNECT_ATTEMPTS = 8
const FIRST_RETRY_MS = 100

/** Wrong password, role or database: waiting does not mend these. */
const HOPELESS = new Set(['28P01', '28000', '3D000'])

// Our bigints are epoch milliseconds and counters, all below 2^53.
pg.types.setTypeParser(INT8_OID, Number)

/** A pool whose server has answered. Errors name host, database and user, never the password. */
export async function openPostgresPool(databaseUrl: string, attempts = CONNECT_ATTEMPTS): Promise<pg.Pool> {
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    max: MAX_CONNECTIONS,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    application_name: 'ash',
  })
  // A connection lost while idle is replaced by the next query; without a listener it would end the process.
  pool.on('error', () => {})
  try {
    await waitUntilReachable(pool, attempts)
    return pool
  } catch (error) {
    await pool.end()
    throw new Error(`Cannot use the database ${describeTarget(databaseUrl)}: ${reasonOf(error)}`)
  }
}

async function waitUntilReachable(pool: pg.Pool, attempts: number): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await pool.query('select 1')
      return
    } catch (error) {
      if (attempt === attempts || HOPELESS.has(codeOf(error))) throw error
      await sleep(FIRST_RETRY_MS * 2 ** (attempt - 1))
    }
  }
}

function describeTarget(databaseUrl: string): string {
  const { username, host, pathname } = new URL(databaseUrl)
  return `${decodeURIComponent(pathname.slice(1)) || '(default)'} at ${host || 'localhost'} as ${decodeURIComponent(username) || '(default user)'}`
}

const codeOf = (error: unknown) => (error instanceof Error && 'code' in error ? String(error.code) : '')

/** Node reports "nobody listens" on a name with several addresses as an AggregateError without a message. */
function reasonOf(error: unknown): string {
  return error instanceof Error && error.message !== '' ? error.message : codeOf(error) || String(error)
}
