import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { CheckpointStore, type SaveRequest } from '../checkpoint-store.ts'

export const TENANT = 'default'

export type TestSession = Pick<SaveRequest, 'roots' | 'indexFile'>

/** A store, and folders for sessions; all gone when the test is over. */
export function storeFixture(options: { sync?: boolean } = {}) {
  const dir = mkdtempSync(join(tmpdir(), 'ash-checkpoints-'))
  // Not Node's own: trees deeper than any path must go, too.
  onTestFinished(() => void execFileSync('rm', ['-rf', '--', dir]))
  const snapshots = join(dir, 'snapshots')
  const store = new CheckpointStore({ dir: snapshots, sync: options.sync ?? false, threads: 1 })
  onTestFinished(() => store.close())
  const emptySession = (name: string): TestSession => {
    mkdirSync(join(dir, name))
    return {
      roots: { workspace: join(dir, name, 'workspace'), home: join(dir, name, 'home') },
      indexFile: join(dir, name, 'index'),
    }
  }
  const session = (name: string): TestSession => {
    const made = emptySession(name)
    mkdirSync(made.roots.workspace)
    mkdirSync(made.roots.home)
    return made
  }
  /** Frozen, with nothing running, unless it is said otherwise. */
  const save = (of: TestSession, state: Pick<SaveRequest, 'pids'> = { pids: [] }) =>
    store.save({ tenantId: TENANT, ...of, ...state }, async (saved) => saved)
  const restore = (manifest: string, to: TestSession) =>
    store.restore({ tenantId: TENANT, manifest, ...to, owner: undefined })
  return { dir, snapshots, store, session, emptySession, save, restore }
}
