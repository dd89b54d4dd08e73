import type { SandboxChange, SandboxRow, SandboxStore } from '@ash-ai/sandbox'
import type { FastifyBaseLogger } from 'fastify'
import { sql } from 'kysely'
import type { Db } from '../db/open-db.ts'

/** What one statement changes at most; both databases bound how many values it may have. */
const MAX_CHANGES = 500

interface StoreDeps {
  db: Db
  /** Whose sandboxes these are. */
  hostId: string
  log: FastifyBaseLogger
}

/** Which sandboxes live on this host, in the database. */
export function createSandboxStore({ db, hostId, log }: StoreDeps): SandboxStore {
  const told = async (work: Promise<unknown>) => {
    await work.catch((error: unknown) => {
      log.warn({ err: error }, 'the state of sandboxes could not be stored')
      throw error
    })
  }
  return {
    put: (row) => told(putRow(db, hostId, row)),
    remove: (id) =>
      told(db.deleteFrom('sandboxes').where('owner_id', '=', hostId).where('id', '=', id).execute()),
    async setStates(changes) {
      for (let first = 0; first < changes.length; first += MAX_CHANGES)
        await told(setStates(db, hostId, changes.slice(first, first + MAX_CHANGES)))
    },
  }
}

/** At the start of a server: what an earlier one had is dead. */
export async function forgetSandboxes(db: Db, hostId: string): Promise<void> {
  await db.deleteFrom('sandboxes').where('owner_id', '=', hostId).execute()
}

/** Whether a session of this host, of whichever tenant, has the host user. */
export async function isUidTaken(db: Db, hostId: string, uid: number): Promise<boolean> {
  const owned = db.selectFrom('sessions').select('id').where('owner_id', '=', hostId)
  return (await owned.where('host_uid', '=', uid).executeTakeFirst()) !== undefined
}

async function putRow(db: Db, hostId: string, row: SandboxRow): Promise<void> {
  const changing = {
    tenant_id: row.tenantId,
    session_id: row.sessionId,
    agent_name: row.agentName,
    agent_version: row.agentVersion,
    template: row.template || null,
    state: row.state,
    last_used_at: row.lastUsedAt,
  }
  await db
    .insertInto('sandboxes')
    .values({ id: row.id, owner_id: hostId, created_at: row.createdAt, ...changing })
    .onConflict((conflict) =>
      conflict.column('id').doUpdateSet(changing).where('sandboxes.owner_id', '=', hostId),
    )
    .execute()
}

/** All in one statement: it runs every second of a busy server. */
async function setStates(db: Db, hostId: string, changes: SandboxChange[]): Promise<void> {
  const states = changes.map(({ id, state }) => sql`when ${id} then ${state}`)
  const times = changes.map(({ id, lastUsedAt }) => sql`when ${id} then cast(${lastUsedAt} as bigint)`)
  await db
    .updateTable('sandboxes')
    .set({
      state: sql`case id ${sql.join(states, sql` `)} end`,
      last_used_at: sql`case id ${sql.join(times, sql` `)} end`,
    })
    .where('owner_id', '=', hostId)
    .where(
      'id',
      'in',
      changes.map(({ id }) => id),
    )
    .execute()
}
