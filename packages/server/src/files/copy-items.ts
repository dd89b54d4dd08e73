import { constants, type Stats } from 'node:fs'
import { AshError, MAX_COPY_BYTES, MAX_COPY_ENTRIES } from '@ash-ai/shared'
import type { Folder, Name, Workspace } from './workspace-folder.ts'

/** Two folders stay open for each level. */
const MAX_DEPTH = 64
const PERMISSIONS = 0o777
const { O_CREAT, O_EXCL, O_RDONLY, O_WRONLY } = constants

interface Copy {
  workspace: Workspace
  from: string
}

interface Budget extends Copy {
  entries: number
  bytes: number
}

/** Copies `name` in `source` as `newName` into `target`. Throws payload_too_large, not_a_file. */
export async function copyItem(
  copy: Copy,
  source: Folder,
  name: Name,
  target: Folder,
  newName: string,
): Promise<void> {
  const stats = await source.stat(name)
  const isCopied = await copyOne(
    { ...copy, entries: 0, bytes: 0 },
    stats,
    [source, name],
    [target, newName],
    1,
  )
  if (!isCopied) throw new AshError('not_a_file', `"${copy.from}" is neither a file, a folder nor a link`)
}

type At = [folder: Folder, name: Name]

async function copyOne(budget: Budget, stats: Stats, from: At, to: At, depth: number): Promise<boolean> {
  if (++budget.entries > MAX_COPY_ENTRIES) throw tooMuch(budget, `more than ${MAX_COPY_ENTRIES} entries`)
  const { owner } = budget.workspace
  if (stats.isFile()) await copyBytes(budget, from, to)
  else if (stats.isDirectory()) await copyFolder(budget, stats, from, to, depth)
  else if (stats.isSymbolicLink()) await to[0].createLink(to[1], await from[0].readLink(from[1]), owner)
  else return false
  return true
}

async function copyFolder(budget: Budget, stats: Stats, from: At, to: At, depth: number): Promise<void> {
  if (depth > MAX_DEPTH) throw tooMuch(budget, `more than ${MAX_DEPTH} folders in each other`)
  await using source = await from[0].openFolder(from[1])
  await using target = await to[0].createFolder(to[1], budget.workspace.owner)
  for await (const { name } of source.items())
    await copyOne(budget, await source.stat(name), [source, name], [target, name], depth + 1)
  await target.setOwnMode(stats.mode & PERMISSIONS)
}

async function copyBytes(budget: Budget, from: At, to: At): Promise<void> {
  await using source = await from[0].openFile(from[1], O_RDONLY)
  const stats = await source.stat()
  if (!stats.isFile()) throw new AshError('not_a_file', `Something in "${budget.from}" is no file any more`)
  // At once where it is plain; it may also grow while it is copied.
  if (budget.bytes + stats.size > MAX_COPY_BYTES) throw tooMuch(budget, `more than ${MAX_COPY_BYTES} bytes`)
  const { owner } = budget.workspace
  await using target = await to[0].openFile(to[1], O_CREAT | O_EXCL | O_WRONLY, 0o600)
  if (owner) await target.chown(owner.uid, owner.gid)
  for await (const chunk of source.createReadStream({ autoClose: false }) as AsyncIterable<Buffer>) {
    budget.bytes += chunk.length
    if (budget.bytes > MAX_COPY_BYTES) throw tooMuch(budget, `more than ${MAX_COPY_BYTES} bytes`)
    await target.writeFile(chunk)
  }
  await target.chmod(stats.mode & PERMISSIONS)
}

const tooMuch = ({ from }: Budget, what: string) =>
  new AshError('payload_too_large', `"${from}" was not copied: it has ${what}`)
