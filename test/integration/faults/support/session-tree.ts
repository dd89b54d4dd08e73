import { createHash } from 'node:crypto'
import { lstat, readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { sessionDirs } from '@ash-ai/sandbox'

/** Everything a session has on disk: path → what is there. Two trees are the same where these are equal. */
export type SessionTree = Record<string, string>

/** Workspace and home as the host sees them. Times of folders are not compared: looking in may change them. */
export async function readTree(dataDir: string, sessionId: string): Promise<SessionTree> {
  const { workspace, home } = sessionDirs(dataDir, sessionId)
  const tree: SessionTree = {}
  const firstNames = new Map<number, string>()
  for (const [name, root] of Object.entries({ workspace, home })) await add(tree, firstNames, root, name)
  return tree
}

export function without(tree: SessionTree, path: string): SessionTree {
  const { [`workspace/${path}`]: _, ...rest } = tree
  return rest
}

async function add(
  tree: SessionTree,
  firstNames: Map<number, string>,
  path: string,
  name: string,
): Promise<void> {
  const raw = Buffer.from(path, 'latin1')
  const stats = await lstat(raw)
  const mode = (stats.mode & 0o7777).toString(8)
  if (stats.isDirectory()) {
    tree[name] = `folder ${mode}`
    // Names are bytes, and need not be UTF-8.
    for (const child of (await readdir(raw, { encoding: 'latin1' })).sort())
      await add(tree, firstNames, join(path, child), `${name}/${child}`)
  } else if (stats.isSymbolicLink()) {
    tree[name] = `link ${await readlink(raw, 'latin1')}`
  } else if (stats.isFile()) {
    const first = stats.nlink > 1 ? firstNames.get(stats.ino) : undefined
    firstNames.set(stats.ino, name)
    const sha256 = createHash('sha256')
      .update(await readFile(raw))
      .digest('hex')
    const same = first === undefined ? '' : ` same file as ${first}`
    tree[name] = `file ${mode} ${Math.round(stats.mtimeMs)} ${stats.size} ${sha256}${same}`
  } else {
    tree[name] = 'something else'
  }
}
