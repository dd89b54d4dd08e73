import type { Kysely } from 'kysely'
import { Migrator } from 'kysely/migration'
import { up as init } from './migrations/0001_init.ts'
import { up as turnRequests } from './migrations/0002_turn_requests.ts'
import { up as checkpoints } from './migrations/0003_checkpoints.ts'
import { up as runningCode } from './migrations/0004_running_code.ts'
import { up as externalIds } from './migrations/0005_external_ids.ts'
import { up as retention } from './migrations/0006_retention.ts'

/** In order; a migration that has shipped is never edited. */
const MIGRATIONS = {
  '0001_init': { up: init },
  '0002_turn_requests': { up: turnRequests },
  '0003_checkpoints': { up: checkpoints },
  '0004_running_code': { up: runningCode },
  '0005_external_ids': { up: externalIds },
  '0006_retention': { up: retention },
}

/** Brings the schema up to date, once, however many servers start together. */
export async function migrate<Schema>(db: Kysely<Schema>): Promise<void> {
  const migrator = new Migrator({ db, provider: { getMigrations: async () => MIGRATIONS } })
  const { error } = await migrator.migrateToLatest()
  if (error === undefined) return
  const reason = error instanceof Error ? error.message : String(error)
  throw new Error(`The database schema could not be brought up to date: ${reason}`, { cause: error })
}
