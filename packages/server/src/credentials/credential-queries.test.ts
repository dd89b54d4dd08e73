import type { CredentialCreate } from '@ash-ai/shared'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openSecretBox } from '../db/secret-box.ts'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { findSessionCredential } from '../sessions/session-credentials.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { insertSession } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import {
  assertCredentials,
  type CredentialStore,
  deleteCredential,
  findUsableCredential,
  getCredential,
  listCredentials,
  putCredential,
} from './credential-queries.ts'

const GITHUB: CredentialCreate = {
  name: 'github',
  hosts: ['API.github.com', 'uploads.github.com:443', 'api.github.com', 'http://10.0.0.7:8080'],
  scheme: { type: 'header', name: 'X-Token' },
  secret: 'hunter2-hünter2',
}
const USABLE = {
  hosts: ['api.github.com', 'uploads.github.com', 'http://10.0.0.7:8080'],
  scheme: GITHUB.scheme,
  secret: GITHUB.secret,
}

for (const database of testDatabases) {
  describe(`credentials in ${database.kind}`, () => {
    let opened: TestDb
    let store: CredentialStore
    beforeEach(async () => {
      opened = await database.open()
      store = { db: opened.db, secrets: await openSecretBox(opened) }
    })
    afterEach(() => opened.close())

    test('one comes back with hosts in one spelling, and its secret only to whoever uses it', async () => {
      const { credential, isNew } = await putCredential(store, 'default', GITHUB)
      expect(isNew).toBe(true)
      expect(await getCredential(opened.db, 'default', 'github')).toEqual(credential)
      expect(credential).toMatchObject({ name: 'github', hosts: USABLE.hosts, scheme: GITHUB.scheme })
      expect(JSON.stringify(credential)).not.toContain('hunter2')
      expect(await findUsableCredential(store, 'default', 'github')).toEqual(USABLE)
      const rows = await opened.db.selectFrom('credentials').selectAll().execute()
      expect(JSON.stringify(rows)).not.toContain('hunter2')
    })

    test('storing under the same name replaces everything but the time of creation', async () => {
      const first = await putCredential(store, 'default', GITHUB)
      await new Promise((resolve) => setTimeout(resolve, 2))
      const next = { name: 'github', hosts: ['b.test'], scheme: { type: 'bearer' as const }, secret: 'two' }
      const { credential, isNew } = await putCredential(store, 'default', next)
      expect(isNew).toBe(false)
      expect(credential.createdAt).toBe(first.credential.createdAt)
      expect(credential.updatedAt > first.credential.updatedAt).toBe(true)
      expect(await findUsableCredential(store, 'default', 'github')).toEqual({
        hosts: ['b.test'],
        scheme: { type: 'bearer' },
        secret: 'two',
      })
    })

    test('another tenant does not see, use, list, replace or delete it', async () => {
      await putCredential(store, 'default', GITHUB)
      const none = { code: 'credential_not_found' }
      await expect(getCredential(opened.db, 'other', 'github')).rejects.toMatchObject(none)
      await expect(deleteCredential(opened.db, 'other', 'github')).rejects.toMatchObject(none)
      await expect(assertCredentials(opened.db, 'other', ['github'])).rejects.toMatchObject({
        code: 'validation_failed',
      })
      expect(await findUsableCredential(store, 'other', 'github')).toBeUndefined()
      expect(await listCredentials(opened.db, 'other', { limit: 10 })).toEqual({ credentials: [] })
      await putCredential(store, 'other', { ...GITHUB, secret: 'theirs' })
      await deleteCredential(opened.db, 'other', 'github')
      expect(await findUsableCredential(store, 'default', 'github')).toEqual(USABLE)
    })

    test.each(['hosts', 'scheme', 'tenant_id', 'name'] as const)(
      'a row whose %s is changed in the database has no secret any more',
      async (column) => {
        await putCredential(store, 'default', GITHUB)
        const change = {
          hosts: '["evil.test"]',
          scheme: '{"type":"bearer"}',
          tenant_id: 'evil',
          name: 'evil',
        }
        await opened.db
          .updateTable('credentials')
          .set({ [column]: change[column] })
          .execute()
        const { tenant_id, name } = await opened.db
          .selectFrom('credentials')
          .selectAll()
          .executeTakeFirstOrThrow()
        await expect(findUsableCredential(store, tenant_id, name)).rejects.toThrow(/cannot be opened/)
      },
    )

    test('a list is in order of name and pages', async () => {
      for (const name of ['c', 'a', 'b']) await putCredential(store, 'default', { ...GITHUB, name })
      const first = await listCredentials(opened.db, 'default', { limit: 2 })
      expect(first.credentials.map(({ name }) => name)).toEqual(['a', 'b'])
      const rest = await listCredentials(opened.db, 'default', { limit: 2, after: first.nextCursor })
      expect(rest.credentials.map(({ name }) => name)).toEqual(['c'])
      expect(rest.nextCursor).toBeUndefined()
    })

    test('names that are not there are told by their place', async () => {
      await putCredential(store, 'default', GITHUB)
      await assertCredentials(opened.db, 'default', ['github'])
      await assertCredentials(opened.db, 'default', undefined)
      await expect(
        assertCredentials(opened.db, 'default', ['github', 'gitlab'], 'config.credentials'),
      ).rejects.toMatchObject({ details: [{ path: 'config.credentials.1' }] })
    })

    test('a session has what it was given, and only as long as it is there', async () => {
      const failures: unknown[] = []
      const log = { error: (fields: unknown) => failures.push(fields) } as unknown as SessionDeps['log']
      const deps = { ...store, log }
      await putCredential(store, 'default', GITHUB)
      const row = sessionRow({ credentials: '["github","gone"]' })
      const stranger = sessionRow({ tenant_id: 'other', credentials: '["github"]' })
      const without = sessionRow({ credentials: '[]' })
      for (const one of [row, stranger, without]) await insertSession(opened.db, one)
      expect(await findSessionCredential(deps, row, 'github')).toEqual(USABLE)
      expect(await findSessionCredential(deps, row, 'gone')).toBeUndefined()
      expect(await findSessionCredential(deps, stranger, 'github')).toBeUndefined()
      expect(await findSessionCredential(deps, without, 'github')).toBeUndefined()
      expect(failures).toEqual([])
      await opened.db.updateTable('credentials').set({ hosts: '["evil.test"]' }).execute()
      await expect(findSessionCredential(deps, row, 'github')).rejects.toThrow()
      expect(failures).toMatchObject([{ sessionId: row.id, credential: 'github' }])
      expect(JSON.stringify(failures)).not.toContain('hunter2')
    })
  })
}
