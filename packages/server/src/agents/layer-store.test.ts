import { lstat, mkdir, readdir, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { layerIn } from '@ash-ai/sandbox'
import type { Packages } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openSecretBox } from '../db/secret-box.ts'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { cleanAgentFolders, deployAgent, removeAgent } from './agent-deploy.ts'
import { type AgentForSession, type AgentStore, getAgentForSession } from './agent-queries.ts'
import { makeBlueprint } from './blueprint.ts'
import { cleanLayers, findLayer, layerDir, listOldLayers, storeLayer } from './layer-store.ts'

for (const database of testDatabases) {
  describe(`layers on ${database.kind}`, () => {
    let opened: TestDb
    let store: AgentStore
    beforeAll(async () => {
      opened = await database.open()
      store = { db: opened.db, dataDir: opened.dataDir, secrets: await openSecretBox(opened) }
    })
    afterAll(() => opened.close())

    const deploy = async (name: string, env: Record<string, string> = {}) => {
      const content = [Buffer.from('x')]
      const entries = [{ path: 'CLAUDE.md', isExecutable: false, content }]
      await deployAgent(store, 'default', { name, entries, env })
      return layerOf(await getAgentForSession(store, 'default', name))
    }
    const layerOf = (agent: AgentForSession | undefined, packages: Packages = {}, runtime?: string) =>
      layerDir(store.dataDir, 'default', makeBlueprint({ agent, packages, runtime }))
    const keep = async (dir: string) => {
      const folders = layerIn(join(store.dataDir, `from-${Math.random()}`))
      for (const folder of [folders.workspace, folders.home]) await mkdir(folder, { recursive: true })
      await storeLayer(store.dataDir, { folders, diskMb: 10 }, dir)
    }

    test('no two versions and no two agents share one, whatever they have in common', async () => {
      const dirs = [await deploy('a'), await deploy('b'), await deploy('a', { X: '1' })]
      expect(new Set(dirs).size).toBe(3)
      await removeAgent(store, 'default', 'a')
      expect(dirs).not.toContain(await deploy('a'))
    })

    test('a start keeps the layers of versions there are, and removes everything else', async () => {
      const dir = await deploy('kept')
      await keep(dir)
      const strays = [
        join(dirname(dir), 'v1-0000'),
        join(store.dataDir, 'layers', 'default', 'nobody', 'v1-0'),
      ]
      const staging = join(store.dataDir, 'layers', '.staging')
      for (const path of [...strays, join(staging, 'half')]) await mkdir(path, { recursive: true })
      await writeFile(join(staging, 'half', 'file'), 'x')
      await cleanAgentFolders(store)
      expect(await findLayer(dir)).toMatchObject({ layer: layerIn(dir) })
      for (const path of [...strays, staging])
        await expect(lstat(path)).rejects.toMatchObject({ code: 'ENOENT' })
    })

    test('a start keeps the layer of a version with more packages, wherever the data is', async () => {
      await deploy('with-more')
      const dataDir = join(opened.dataDir, 'a+b')
      const plus = { ...store, dataDir }
      const agent = await getAgentForSession(store, 'default', 'with-more')
      const blueprint = makeBlueprint({ agent, packages: { pip: ['numpy'] } })
      const dir = await layerDir(dataDir, 'default', blueprint)
      const folders = layerIn(join(dataDir, 'from'))
      for (const folder of [folders.workspace, folders.home]) await mkdir(folder, { recursive: true })
      await storeLayer(dataDir, { folders, diskMb: 10 }, dir)
      await cleanLayers(plus)
      expect(await findLayer(dir)).toBeDefined()
    })

    test('a layer that is used counts as new', async () => {
      const dirs = [1, 2].map((number) => join(store.dataDir, 'layers', 'default', 'used', `v${number}-0`))
      for (const dir of dirs) {
        await keep(dir)
        await utimes(dir, 1, 1)
      }
      await findLayer(dirs[0] ?? '')
      const times = await Promise.all(dirs.map(async (dir) => (await lstat(dir)).mtimeMs))
      expect(times[0]).toBeGreaterThan(times[1] ?? 0)
    })

    test('packages that no agent has lie apart, by what they are, and survive a start', async () => {
      const six = { pip: ['six'] }
      const agent = await getAgentForSession(store, 'default', 'kept')
      const [alone, again] = [await layerOf(undefined, six), await layerOf(undefined, six, 'node')]
      expect(again).toBe(alone)
      expect(alone).toContain(join('layers', 'default', '~packages', 'p-'))
      const others = [await layerOf(undefined, six, 'python3.11'), await layerOf(undefined, { npm: ['six'] })]
      const added = await layerOf(agent, six)
      expect(new Set([alone, ...others, added, await layerOf(agent)]).size).toBe(5)
      for (const dir of [alone, added]) await keep(dir)
      await mkdir(join(dirname(added), 'v1-0000+ff'), { recursive: true })
      await cleanAgentFolders(store)
      for (const dir of [alone, added]) expect(await findLayer(dir)).toBeDefined()
      expect(await readdir(dirname(added))).not.toContain('v1-0000+ff')
    })

    test('of packages more are kept than of an agent', async () => {
      const dirs = Array.from({ length: 25 }, (_, n) => layerOf(undefined, { npm: [`package-${n}`] }))
      for (const dir of await Promise.all(dirs)) await mkdir(dir, { recursive: true })
      const [one = ''] = await Promise.all(dirs)
      const all = await readdir(dirname(one))
      expect(all.length - (await listOldLayers(one)).length).toBe(20)
    })

    test('an agent that is deleted takes its layers along, those of others stay', async () => {
      const [gone, other] = [await deploy('gone'), await deploy('other')]
      await keep(gone)
      await keep(other)
      await removeAgent(store, 'default', 'gone')
      expect([await findLayer(gone), await findLayer(other)]).toMatchObject([
        undefined,
        { size: { entries: 2 } },
      ])
      expect(await readdir(join(store.dataDir, 'layers', 'default'))).not.toContain('gone')
    })
  })
}
