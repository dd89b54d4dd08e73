import type { Db } from '../db/open-db.ts'
import type { ApiKeysTable } from '../db/tables.ts'

/** The one query without a tenant: the key is what says which tenant it is. */
export async function findTenantByKeyHash(db: Db, keyHash: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select('tenant_id')
    .where('key_hash', '=', keyHash)
    .executeTakeFirst()
  return row?.tenant_id
}

export async function hasApiKey(db: Db, tenantId: string): Promise<boolean> {
  const row = await db
    .selectFrom('api_keys')
    .select('id')
    .where('tenant_id', '=', tenantId)
    .limit(1)
    .executeTakeFirst()
  return row !== undefined
}

/** False when a key with that id, or that very key, is already there: whichever of the two a race meets first. */
export async function insertApiKey(db: Db, row: ApiKeysTable): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('api_keys')
    .values(row)
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst()
  return numInsertedOrUpdatedRows === 1n
}
