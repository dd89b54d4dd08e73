import { createHash } from 'node:crypto'
import { lstatSync, readdirSync, readFileSync, readlinkSync, type Stats } from 'node:fs'
import { DeepPaths } from '../deep-paths.ts'
import { joinPath } from '../entry-path.ts'

/** Every entry of a tree with all that a checkpoint promises to keep, for a comparison of two. */
export function describeTree(root: string): Map<string, object> {
  const [tree, firstNames] = [new Map<string, object>(), new Map<number, string>()]
  const paths = new DeepPaths(root)
  const visit = (path: string) => {
    const stats = lstatSync(paths.at(path))
    tree.set(path, describeEntry(paths, path, stats, firstNames))
    if (!stats.isDirectory()) return
    for (const name of readdirSync(paths.at(path), { encoding: 'latin1' }).sort()) visit(joinPath(path, name))
  }
  try {
    visit('')
    return tree
  } finally {
    paths.close()
  }
}

function describeEntry(
  paths: DeepPaths,
  path: string,
  stats: Stats,
  firstNames: Map<number, string>,
): object {
  const mtimeUs = Math.round(stats.mtimeMs * 1000)
  if (stats.isSymbolicLink()) {
    return { type: 'link', mtimeUs, target: readlinkSync(paths.at(path), { encoding: 'latin1' }) }
  }
  const entry = { mode: (stats.mode & 0o1777).toString(8), mtimeUs }
  if (stats.isDirectory()) return { type: 'directory', ...entry }
  if (!stats.isFile()) return { type: 'other' }
  const firstName = firstNames.get(stats.ino) ?? path
  firstNames.set(stats.ino, firstName)
  const sha = createHash('sha256')
    .update(readFileSync(paths.at(path)))
    .digest('hex')
  return { type: 'file', ...entry, size: stats.size, sha, sameAs: firstName }
}
