import { createHash, randomBytes } from 'node:crypto'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { DEFAULT_TENANT } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import type { Db } from '../db/open-db.ts'
import { createPrivateFile } from '../db/private-file.ts'
import { findTenantByKeyHash, hasApiKey, insertApiKey } from './api-key-queries.ts'

const KEY_BYTES = 24
const KEY = /^ash_[A-Za-z0-9_-]{32,}$/
/** A fixed id: of several servers that start together on one database, one inserts it. */
const FIRST_KEY_ID = 'first'

export interface FirstKeyDeps {
  db: Db
  dataDir: string
  /** ASH_API_KEY. Where the operator chose a key, none is made. */
  apiKey?: string
  log: Pick<FastifyBaseLogger, 'info' | 'warn'>
}

/** Makes sure that somebody can log in: the key's text is in `<dataDir>/api-key`, its hash in the database. */
export async function ensureFirstKey({ db, dataDir, apiKey, log }: FirstKeyDeps): Promise<void> {
  if (apiKey !== undefined) return
  const path = join(dataDir, 'api-key')
  if (await hasApiKey(db, DEFAULT_TENANT)) return await hintIfUnreadable(path, log)
  // The file comes first: a crash in between leaves a key that the next start takes up, not a lost one.
  const key = await readOrCreateKey(path)
  const keyHash = createHash('sha256').update(key).digest('hex')
  const isFirst = await insertApiKey(db, {
    id: FIRST_KEY_ID,
    tenant_id: DEFAULT_TENANT,
    key_hash: keyHash,
    label: 'made at first start',
    created_at: Date.now(),
  })
  if (isFirst) log.info({ path }, 'made an API key; its text is in this file')
  else await dropIfUseless(db, path, keyHash)
}

async function hintIfUnreadable(path: string, log: FirstKeyDeps['log']): Promise<void> {
  if ((await readKey(path)) !== undefined) return
  log.warn({ path }, 'the API key file is gone; its key still works, and ASH_API_KEY adds another')
}

async function readOrCreateKey(path: string): Promise<string> {
  await createPrivateFile(path, makeKey())
  const key = await readKey(path)
  if (key !== undefined) return key
  // What is there is no key, for instance an empty file after power loss.
  await rm(path)
  await createPrivateFile(path, makeKey())
  return (await readKey(path)) ?? fail(`${path} does not hold an API key`)
}

const makeKey = () => `ash_${randomBytes(KEY_BYTES).toString('base64url')}\n`

async function readKey(path: string): Promise<string | undefined> {
  try {
    const text = (await readFile(path, 'utf8')).trim()
    return KEY.test(text) ? text : undefined
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

function fail(message: string): never {
  throw new Error(message)
}

/** Another server was first, with a key of its own: a file with a key that opens nothing would only mislead. */
async function dropIfUseless(db: Db, path: string, keyHash: string): Promise<void> {
  if ((await findTenantByKeyHash(db, keyHash)) === undefined) await rm(path, { force: true })
}
