import type { TemplateSettings } from '@ash-ai/shared'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { deployAgent } from '../agents/agent-deploy.ts'
import type { AgentStore } from '../agents/agent-queries.ts'
import { openSecretBox } from '../db/secret-box.ts'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { fenceOf, insertSession, moveSession } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import {
  assertTemplate,
  deleteTemplate,
  getTemplate,
  getTemplateForSession,
  insertTemplate,
  listAllTemplates,
  listTemplates,
  putTemplate,
} from './template-queries.ts'

const DATA: TemplateSettings = {
  description: 'Tables',
  runtime: 'python3',
  packages: { pip: ['pandas'] },
  env: { TOKEN: 'hunter2' },
  limits: { memoryMb: 256 },
}

for (const database of testDatabases) {
  describe(`templates in ${database.kind}`, () => {
    let opened: TestDb
    let store: AgentStore
    beforeEach(async () => {
      opened = await database.open()
      store = { db: opened.db, dataDir: opened.dataDir, secrets: await openSecretBox(opened) }
    })
    afterEach(() => opened.close())
    const names = async (page: { limit: number; after?: string | undefined }) => {
      const { templates, nextCursor } = await listTemplates(store, 'default', page)
      return { names: templates.map(({ name }) => name), nextCursor }
    }

    test('one comes back with its languages, and its variables only to a session', async () => {
      const template = await insertTemplate(store, 'default', 'data', DATA)
      expect(await getTemplate(store, 'default', 'data')).toEqual(template)
      const { env: _, ...shown } = DATA
      expect(template).toMatchObject({
        ...shown,
        name: 'data',
        languages: ['python', 'shell'],
        env: { TOKEN: '***' },
        isBuiltIn: false,
      })
      expect(await getTemplateForSession(store, 'default', 'data')).toMatchObject({ env: DATA.env })
      const rows = await opened.db.selectFrom('templates').selectAll().execute()
      expect(JSON.stringify([rows, template])).not.toContain('hunter2')
    })

    test('a name is given once; replacing merges nothing', async () => {
      const first = await insertTemplate(store, 'default', 'data', DATA)
      await expect(insertTemplate(store, 'default', 'data', {})).rejects.toMatchObject({
        code: 'template_conflict',
      })
      const { template, isNew } = await putTemplate(store, 'default', 'data', { runtime: 'node' })
      expect(isNew).toBe(false)
      expect(template).toEqual({
        name: 'data',
        runtime: 'node',
        languages: ['javascript', 'shell'],
        env: {},
        isBuiltIn: false,
        createdAt: first.createdAt,
        updatedAt: expect.any(String),
      })
      expect(await putTemplate(store, 'default', 'new', DATA)).toMatchObject({ isNew: true })
    })

    test('replaced by many at once, it is what one of them made', async () => {
      const made = await Promise.all(
        Array.from({ length: 8 }, (_, n) =>
          putTemplate(store, 'default', 'data', { env: { [`V${n}`]: `${n}` }, timeout: n + 1 }),
        ),
      )
      expect(made.filter(({ isNew }) => isNew)).toHaveLength(1)
      const { settings, env } = await getTemplateForSession(store, 'default', 'data')
      const n = (settings.timeout ?? 0) - 1
      expect(env).toEqual({ [`V${n}`]: `${n}` })
    })

    test('another tenant does not see, list, replace or delete it', async () => {
      await insertTemplate(store, 'default', 'data', DATA)
      const none = { code: 'template_not_found' }
      await expect(getTemplate(store, 'other', 'data')).rejects.toMatchObject(none)
      await expect(getTemplateForSession(store, 'other', 'data')).rejects.toMatchObject(none)
      await expect(deleteTemplate(opened.db, 'other', 'data')).rejects.toMatchObject(none)
      await expect(assertTemplate(opened.db, 'other', 'data', 'template')).rejects.toMatchObject({
        details: [{ path: 'template' }],
      })
      const { templates } = await listTemplates(store, 'other', { limit: 10 })
      expect(templates.map(({ name }) => name)).toEqual(['node', 'python', 'shell'])
      await putTemplate(store, 'other', 'data', {})
      expect(await getTemplateForSession(store, 'default', 'data')).toMatchObject({ env: DATA.env })
      expect(await listAllTemplates(opened.db)).toHaveLength(2)
    })

    test.each(['tenant_id', 'name', 'version'] as const)(
      'a row whose %s is changed in the database has no variables any more',
      async (column) => {
        await insertTemplate(store, 'default', 'data', DATA)
        const change = { tenant_id: 'evil', name: 'evil', version: 7 }
        await opened.db
          .updateTable('templates')
          .set({ [column]: change[column] })
          .execute()
        const { tenant_id, name } = await opened.db
          .selectFrom('templates')
          .selectAll()
          .executeTakeFirstOrThrow()
        await expect(getTemplateForSession(store, tenant_id, name)).rejects.toThrow(/cannot be opened/)
      },
    )

    test('those that are built in are listed among the others, and cannot be changed', async () => {
      for (const name of ['Zed', 'mine', 'q', 'z']) await insertTemplate(store, 'default', name, {})
      expect(await names({ limit: 3 })).toEqual({ names: ['Zed', 'mine', 'node'], nextCursor: 'node' })
      expect(await names({ limit: 3, after: 'node' })).toEqual({
        names: ['python', 'q', 'shell'],
        nextCursor: 'shell',
      })
      expect(await names({ limit: 3, after: 'shell' })).toEqual({ names: ['z'], nextCursor: undefined })
      const conflict = { code: 'template_conflict' }
      await expect(insertTemplate(store, 'default', 'python', {})).rejects.toMatchObject(conflict)
      await expect(putTemplate(store, 'default', 'node', {})).rejects.toMatchObject(conflict)
      await expect(deleteTemplate(opened.db, 'default', 'shell')).rejects.toMatchObject(conflict)
      expect(await getTemplate(store, 'default', 'python')).toMatchObject({
        languages: ['python', 'shell'],
        network: 'none',
        isBuiltIn: true,
      })
    })

    test('one in use is not deleted, and the refusal says by whom', async () => {
      await insertTemplate(store, 'default', 'data', DATA)
      const row = sessionRow({ template: 'data', status: 'paused' })
      await insertSession(opened.db, row)
      await insertSession(opened.db, sessionRow({ tenant_id: 'other', template: 'data' }))
      await expect(deleteTemplate(opened.db, 'default', 'data')).rejects.toMatchObject({
        code: 'template_in_use',
        message: expect.stringContaining(row.id),
      })
      await moveSession(opened.db, fenceOf(row), 'ended')
      const deploy = (template: string) =>
        deployAgent(store, 'default', {
          name: 'analyst',
          entries: [{ path: 'CLAUDE.md', isExecutable: false, content: [Buffer.from('x')] }],
          config: { template },
        })
      await deploy('data')
      await expect(deleteTemplate(opened.db, 'default', 'data')).rejects.toMatchObject({
        code: 'template_in_use',
        message: expect.stringContaining('"analyst"'),
      })
      await expect(deploy('nothing')).rejects.toMatchObject({ details: [{ path: 'config.template' }] })
      await deploy('python')
      await deleteTemplate(opened.db, 'default', 'data')
      await expect(deleteTemplate(opened.db, 'default', 'data')).rejects.toMatchObject({
        code: 'template_not_found',
      })
    })
  })
}
