import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import { DEFAULT_TENANT } from '@ash-ai/shared'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type AgentStore, getAgent } from '../agents/agent-queries.ts'
import { openSecretBox } from '../db/secret-box.ts'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { getTemplate, getTemplateForSession, putTemplate } from '../templates/template-queries.ts'
import { applyRegistry, openRegistry } from './apply-registry.ts'

const FILES = {
  'environments/e.yaml': 'name: e\nenvironment: { TOKEN: hunter2 }\nwarm: { ephemeral: {} }',
  'tools/t.yaml': 'name: t\nscript: |\n  cat',
  'agents/a.yaml': 'name: a\nenvironment: e\nsystem_prompt: Be kind.\ntools: [t]',
}

for (const database of testDatabases) {
  describe(`a registry in ${database.kind}`, () => {
    let opened: TestDb
    let store: AgentStore
    let dir: string
    let lines: string[]
    const log = pino({ base: null }, { write: (line: string) => void lines.push(line) })
    const write = async (files: Record<string, string>) => {
      for (const [path, text] of Object.entries(files)) {
        await mkdir(join(dir, dirname(path)), { recursive: true })
        await writeFile(join(dir, path), text)
      }
    }
    const open = () => openRegistry({ registryDir: dir, provider: 'bwrap', limits: DEFAULT_LIMITS }, log)
    /** The files that changed something. */
    const apply = async () => {
      const registry = await open()
      if (registry) await applyRegistry(store, registry, log)
      return JSON.parse(lines.at(-1) ?? '{}').changed
    }

    beforeEach(async () => {
      opened = await database.open()
      store = { db: opened.db, dataDir: opened.dataDir, secrets: await openSecretBox(opened) }
      dir = join(opened.dataDir, 'registry')
      lines = []
      await write(FILES)
    })
    afterEach(() => opened.close())

    test('makes templates and agents once, and values of variables stay out of the log', async () => {
      expect(await apply()).toEqual(['environments/e.yaml', 'agents/a.yaml'])
      const before = await getTemplate(store, DEFAULT_TENANT, 'e')
      expect(await getTemplateForSession(store, DEFAULT_TENANT, 'e')).toMatchObject({
        env: { TOKEN: 'hunter2' },
      })
      expect((await getAgent(store, DEFAULT_TENANT, 'a')).config).toMatchObject({ template: 'e', tools: [] })
      expect(await apply()).toEqual([])
      expect(await getTemplate(store, DEFAULT_TENANT, 'e')).toEqual(before)
      expect(lines.join()).not.toContain('hunter2')
    })

    test('overwrites what was changed meanwhile, and only that', async () => {
      await apply()
      await putTemplate(store, DEFAULT_TENANT, 'e', { network: 'open' })
      expect(await apply()).toEqual(['environments/e.yaml'])
      await write({ 'tools/t.yaml': 'name: t\nscript: |\n  cat -n' })
      expect(await apply()).toEqual(['agents/a.yaml'])
      expect((await getAgent(store, DEFAULT_TENANT, 'a')).version).toBe(2)
    })

    test('with faults changes nothing and logs each', async () => {
      await write({ 'agents/b.yaml': 'name: b\nprompt: gone\ncolor: red' })
      await expect(apply()).rejects.toThrow(/\(ASH_REGISTRY_DIR\) has 2 faults/)
      const faults = lines.map((line) => JSON.parse(line).msg)
      expect(faults).toEqual([
        expect.stringContaining('agents/b.yaml:2:1 prompt'),
        expect.stringContaining('agents/b.yaml:3:1 color'),
      ])
      await expect(getTemplate(store, DEFAULT_TENANT, 'e')).rejects.toMatchObject({
        code: 'template_not_found',
      })
    })
  })
}

test('without a folder in the settings there is no registry', async () => {
  expect(
    await openRegistry({ provider: 'bwrap', limits: DEFAULT_LIMITS }, pino({ enabled: false })),
  ).toBeUndefined()
})
