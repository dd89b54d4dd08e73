import { spawn } from 'node:child_process'
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { describeTree } from './testing/describe-tree.ts'
import { growTree, seededRandom } from './testing/random-tree.ts'
import { storeFixture, TENANT } from './testing/store-fixture.ts'

/** How the process ended. */
function run(request: object): Promise<NodeJS.Signals | number | null> {
  const script = fileURLToPath(new URL('./testing/fault-child.ts', import.meta.url))
  const child = spawn(process.execPath, ['--conditions=development', script, JSON.stringify(request)], {
    stdio: 'inherit',
  })
  return new Promise((resolve) => child.once('exit', (code, signal) => resolve(signal ?? code)))
}

function withTree() {
  const fixture = storeFixture()
  const session = fixture.session('one')
  growTree(session.roots.workspace, seededRandom(7), 15)
  growTree(session.roots.home, seededRandom(8), 5)
  return { ...fixture, session }
}

describe('killed while it saves', () => {
  test.each(['checkpoint-blobs:2', 'checkpoint-scanned', 'checkpoint-manifest', 'checkpoint-committed'])(
    'at %s: the files are as they were, and the next save is whole',
    async (faultPoint) => {
      const { snapshots, session, emptySession, save, restore } = withTree()
      const before = describeTree(session.roots.workspace)
      const request = { tenantId: TENANT, ...session, pids: [] }
      expect(await run({ faultPoint, dir: snapshots, save: request })).toBe('SIGKILL')
      expect(describeTree(session.roots.workspace)).toEqual(before)
      const copy = emptySession('copy')
      await restore((await save(session)).manifest, copy)
      expect(describeTree(copy.roots.workspace)).toEqual(before)
    },
  )
})

describe('killed while it restores', () => {
  test.each(['restore-filled', 'restore-home', 'restore-workspace', 'restore-done'])(
    'at %s: there is a whole workspace or none, and restoring again works',
    async (faultPoint) => {
      const { dir, snapshots, session, emptySession, save, restore } = withTree()
      const { manifest } = await save(session)
      const copy = emptySession('copy')
      const request = { tenantId: TENANT, manifest, ...copy }
      expect(await run({ faultPoint, dir: snapshots, restore: request })).toBe('SIGKILL')
      const isWhole = ['restore-workspace', 'restore-done'].includes(faultPoint)
      expect(existsSync(copy.roots.workspace)).toBe(isWhole)
      if (!isWhole) {
        await restore(manifest, copy)
        expect(readdirSync(join(dir, 'copy')).sort()).toEqual(['home', 'index', 'workspace'])
      }
      for (const root of ['workspace', 'home'] as const) {
        expect(describeTree(copy.roots[root])).toEqual(describeTree(session.roots[root]))
      }
      writeFileSync(join(copy.roots.workspace, 'new'), '')
      expect((await save(copy)).files).toBe((await save(session)).files + 1)
    },
  )
})
