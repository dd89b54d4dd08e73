import {
  type CheckpointStore,
  type KnownCheckpoint,
  type RemoteStore,
  sweepLocal,
  sweepRemote,
} from '@ash-ai/sandbox'
import { type GarbageReport, isAshError } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import type { Db } from '../db/open-db.ts'

export interface GarbageDeps {
  db: Db
  hostId: string
  checkpoints: CheckpointStore
  remote: RemoteStore | undefined
  log: FastifyBaseLogger
}

/** Reads of the database are short: everybody else waits for them. */
const ROWS_PER_READ = 1_000

/** Deletes what no checkpoint of a tenant refers to, on this host and in the remote store, or counts it. */
export async function collectGarbage(
  deps: GarbageDeps,
  tenantId: string,
  { dryRun = false, signal }: { dryRun?: boolean | undefined; signal?: AbortSignal },
): Promise<GarbageReport> {
  const { checkpoints: store, remote, log } = deps
  const request = { tenantId, dryRun, signal, checkpoints: () => listKnown(deps, tenantId) }
  const { deleted, kept } = await sweepLocal(store, remote, request)
  const report = { dryRun, local: deleted, kept }
  if (!remote) return report
  try {
    return { ...report, remote: await sweepRemote(store, remote, request) }
  } catch (error) {
    // Another host has not uploaded its newest yet: next time, then.
    if (!isAshError(error, 'checkpoint_damaged')) throw error
    log.warn({ err: error, tenantId }, 'the remote store was not searched for what nobody needs')
    return report
  }
}

async function listKnown({ db, hostId }: GarbageDeps, tenantId: string): Promise<KnownCheckpoint[]> {
  const known: KnownCheckpoint[] = []
  let last = { created_at: -1, id: '' }
  for (;;) {
    const { created_at, id } = last
    const rows = await db
      .selectFrom('checkpoints')
      .select(['id', 'manifest', 'owner_id', 'created_at'])
      .where('tenant_id', '=', tenantId)
      .where((where) =>
        where.or([
          where('created_at', '>', created_at),
          where.and([where('created_at', '=', created_at), where('id', '>', id)]),
        ]),
      )
      .orderBy('created_at')
      .orderBy('id')
      .limit(ROWS_PER_READ)
      .execute()
    for (const row of rows) known.push({ id: row.id, manifest: row.manifest, isOwn: row.owner_id === hostId })
    last = rows.at(-1) ?? last
    if (rows.length < ROWS_PER_READ) return known
  }
}
