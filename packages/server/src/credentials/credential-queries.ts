import {
  formatCredentialHost,
  parseCredentialHost,
  type Credential as UsableCredential,
} from '@ash-ai/sandbox'
import { AshError, type Credential, type CredentialCreate, CredentialScheme } from '@ash-ai/shared'
import type { Db } from '../db/open-db.ts'
import type { SecretBox } from '../db/secret-box.ts'
import type { CredentialsTable } from '../db/tables.ts'
import { validationError } from '../http/validation-error.ts'

export interface CredentialStore {
  db: Db
  secrets: SecretBox
}

/** Stores a credential; under a name that is taken it replaces hosts, scheme and secret. */
export async function putCredential(
  { db, secrets }: CredentialStore,
  tenantId: string,
  { name, secret, ...rest }: CredentialCreate,
): Promise<{ credential: Credential; isNew: boolean }> {
  const hosts = JSON.stringify([...new Set(rest.hosts.map(toStoredHost))])
  const scheme = JSON.stringify(rest.scheme)
  const now = Date.now()
  const content = {
    hosts,
    scheme,
    secret_sealed: secrets.seal(secret, aadOf({ tenant_id: tenantId, name, hosts, scheme })),
    updated_at: now,
  }
  const row = await db
    .insertInto('credentials')
    .values({ tenant_id: tenantId, name, ...content, created_at: now })
    .onConflict((conflict) => conflict.columns(['tenant_id', 'name']).doUpdateSet(content))
    .returningAll()
    .executeTakeFirstOrThrow()
  return { credential: toCredential(row), isNew: row.created_at === now }
}

export async function getCredential(db: Db, tenantId: string, name: string): Promise<Credential> {
  const row = await findRow(db, tenantId, name)
  if (!row) throw notFound(name)
  return toCredential(row)
}

/** With its secret, for the one who carries out requests. */
export async function findUsableCredential(
  { db, secrets }: CredentialStore,
  tenantId: string,
  name: string,
): Promise<UsableCredential | undefined> {
  const row = await findRow(db, tenantId, name)
  if (!row) return undefined
  const { hosts, scheme } = toCredential(row)
  return { hosts, scheme, secret: secrets.open(row.secret_sealed, aadOf(row)) as string }
}

/** In order of name, after the name `after`. */
export async function listCredentials(
  db: Db,
  tenantId: string,
  { limit, after }: { limit: number; after?: string | undefined },
): Promise<{ credentials: Credential[]; nextCursor?: string }> {
  const query = db
    .selectFrom('credentials')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .orderBy('name')
    .limit(limit + 1)
  const rows = await (after === undefined ? query : query.where('name', '>', after)).execute()
  const credentials = rows.slice(0, limit).map(toCredential)
  const last = credentials.at(-1)
  return { credentials, ...(rows.length > limit && last && { nextCursor: last.name }) }
}

export async function deleteCredential(db: Db, tenantId: string, name: string): Promise<void> {
  const { numDeletedRows } = await db
    .deleteFrom('credentials')
    .where('tenant_id', '=', tenantId)
    .where('name', '=', name)
    .executeTakeFirst()
  if (numDeletedRows === 0n) throw notFound(name)
}

/** Throws where one of the names is not a credential of the tenant; `field` is what the client called the list. */
export async function assertCredentials(
  db: Db,
  tenantId: string,
  names: readonly string[] = [],
  field = 'credentials',
): Promise<void> {
  if (names.length === 0) return
  const rows = await db
    .selectFrom('credentials')
    .select('name')
    .where('tenant_id', '=', tenantId)
    .where('name', 'in', names)
    .execute()
  const known = new Set(rows.map((row) => row.name))
  const details = names.flatMap((name, index) =>
    known.has(name) ? [] : [{ path: `${field}.${index}`, message: `there is no credential "${name}"` }],
  )
  if (details.length > 0) throw validationError(details)
}

async function findRow(db: Db, tenantId: string, name: string): Promise<CredentialsTable | undefined> {
  return db
    .selectFrom('credentials')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('name', '=', name)
    .executeTakeFirst()
}

function toCredential(row: CredentialsTable): Credential {
  return {
    name: row.name,
    hosts: JSON.parse(row.hosts) as string[],
    scheme: CredentialScheme.parse(JSON.parse(row.scheme)),
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
  }
}

function toStoredHost(text: string, index: number): string {
  const host = parseCredentialHost(text)
  if (host) return formatCredentialHost(host)
  const message = 'must be host, host:port or http://host:port, without wildcard and path'
  throw validationError([{ path: `hosts.${index}`, message }])
}

/** Ties the secret to where it may go and how: whoever changes those in the database has no secret any more. */
function aadOf(row: Pick<CredentialsTable, 'tenant_id' | 'name' | 'hosts' | 'scheme'>): string {
  return JSON.stringify(['credential', row.tenant_id, row.name, row.hosts, row.scheme])
}

const notFound = (name: string) => new AshError('credential_not_found', `No credential is named "${name}"`)
