import { readSync } from 'node:fs'
import { isGone } from './checkpoint-fault.ts'
import { type HeldFolder, holdFile } from './held-folder.ts'
import { MAX_IGNORE_BYTES, parseIgnorePatterns } from './ignore-patterns.ts'

/** Caches under the home folder that their tools fill again by themselves. Nothing else is left out by default. */
const HOME_CACHES: readonly string[] = [
  '.bun/install/cache',
  '.cache/go-build',
  '.cache/node-gyp',
  '.cache/pip',
  '.cache/pnpm',
  '.cache/typescript',
  '.cache/uv',
  '.cache/yarn',
  '.cargo/registry/cache',
  '.npm/_cacache',
  '.npm/_logs',
  '.npm/_npx',
  '.yarn/berry/cache',
  'go/pkg/mod/cache',
]

export type IsLeftOut = (path: string, isFolder: boolean) => boolean

const homeCaches = new Set(HOME_CACHES)

export const leftOutOfHome: IsLeftOut = (path, isFolder) => isFolder && homeCaches.has(path)

/** What `.ashignore` at the root of the workspace names. */
export function leftOutOfWorkspace(root: HeldFolder): IsLeftOut {
  const { ignores } = parseIgnorePatterns(readIgnoreFile(root))
  return (path, isFolder) => isHalfDone(path) || ignores(path, isFolder)
}

/** What the file API is about to move into place, or to delete. */
const isHalfDone = (path: string) => /^\.ash-(write|delete)-[0-9a-f-]{36}$/.test(path)

function readIgnoreFile(root: HeldFolder): string {
  try {
    const held = holdFile(root, '.ashignore')
    if (held === undefined) return ''
    try {
      const buffer = Buffer.alloc(MAX_IGNORE_BYTES + 1)
      const length = readSync(held.fd, buffer, 0, buffer.length, 0)
      // Part of it would leave out something else than all of it.
      return length > MAX_IGNORE_BYTES ? '' : buffer.toString('latin1', 0, length)
    } finally {
      held.close()
    }
  } catch (error) {
    if (isGone(error)) return ''
    throw error
  }
}
