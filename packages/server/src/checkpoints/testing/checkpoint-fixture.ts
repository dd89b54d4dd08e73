import { randomUUID } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { CheckpointStore } from '@ash-ai/sandbox'
import { onTestFinished } from 'vitest'
import type { Db } from '../../db/open-db.ts'
import { insertSession } from '../../sessions/session-queries.ts'
import { sessionRow } from '../../sessions/testing/session-rows.ts'
import type { CheckpointRow } from '../checkpoint-queries.ts'
import { nextMs } from '../save-checkpoint.ts'

async function tempDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-checkpoints-'))
  onTestFinished(() => rm(dir, { recursive: true, force: true }))
  return dir
}

export async function makeStore(): Promise<CheckpointStore> {
  const store = new CheckpointStore({ dir: join(await tempDir(), 'store'), sync: false })
  onTestFinished(() => store.close())
  return store
}

/** A session in the database whose files are saved by name and text. */
export async function makeSession(db: Db, store: CheckpointStore, tenantId = 'default') {
  const dir = await tempDir()
  const roots = { workspace: join(dir, 'workspace'), home: join(dir, 'home') }
  for (const root of Object.values(roots)) await mkdir(root)
  const session = sessionRow({ tenant_id: tenantId })
  await insertSession(db, session)
  const indexFile = join(dir, 'index')
  return {
    id: session.id,
    async save(files: Record<string, string>, change: Partial<CheckpointRow> = {}): Promise<CheckpointRow> {
      for (const [name, text] of Object.entries(files)) await writeFile(join(roots.workspace, name), text)
      return store.save({ tenantId, roots, indexFile, pids: [] }, async ({ manifest }) => {
        const row = checkpointRow({ tenant_id: tenantId, session_id: session.id, manifest, ...change })
        await db.insertInto('checkpoints').values(row).execute()
        return row
      })
    },
  }
}

function checkpointRow(
  change: Partial<CheckpointRow> & Pick<CheckpointRow, 'tenant_id' | 'session_id' | 'manifest'>,
): CheckpointRow {
  return {
    id: randomUUID(),
    owner_id: 'host-a',
    seq: 1,
    turn_id: null,
    reason: 'turn',
    files: 1,
    bytes: 1,
    settings: '{}',
    sdk_session_id: null,
    uploaded_at: null,
    created_at: nextMs(),
    ...change,
  }
}
