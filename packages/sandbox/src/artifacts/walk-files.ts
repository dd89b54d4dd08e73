import { type BigIntStats, lstatSync, opendirSync, readdirSync } from 'node:fs'
import { codeOf, isGone } from '../checkpoints/checkpoint-fault.ts'
import { joinPath, toBytes } from '../checkpoints/entry-path.ts'
import { childOf, type HeldFolder, holdFolder } from '../checkpoints/held-folder.ts'

const MAX_ENTRIES = 20_000
const MAX_DEPTH = 32
/** Holds a few hundred entries at most, on most file systems: these are read at once, in a third of the time. */
const SMALL_FOLDER_BYTES = 16 * 1024
const LEFT_OUT = new Set(['node_modules', '__pycache__'])

/** What tells one state of a file from another. */
export interface SeenFile {
  ino: bigint
  size: number
  ctimeNs: bigint
  mtimeMs: number
}

/** The regular files of a workspace by their paths, and whether that is all of them. */
export interface FileScan {
  files: Map<string, SeenFile>
  isComplete: boolean
}

/** There are more entries than the caller wants to wait for. */
export class TooManyEntries extends Error {}

interface Walk extends FileScan {
  entries: number
  maxEntries: number
  visit: VisitFile
}

/** Called while the folder is open, so that the file can be opened in it. */
export type VisitFile = (folder: HeldFolder, name: string, path: string, seen: SeenFile) => void

/**
 * Walks the regular files below a folder that untrusted code may be changing meanwhile: by descriptors, never through a
 * link. Hidden ones, and what tools keep for themselves, are left out. Throws `TooManyEntries` beyond `maxEntries`.
 */
export function walkFiles(
  dir: string,
  visit: VisitFile = () => {},
  maxEntries = Number.POSITIVE_INFINITY,
): FileScan {
  const walk: Walk = { files: new Map(), isComplete: true, entries: 0, maxEntries, visit }
  const root = holdFolder(Buffer.from(dir).toString('latin1'))
  walkFolder(walk, root, '', 1)
  return { files: walk.files, isComplete: walk.isComplete }
}

function walkFolder(walk: Walk, folder: HeldFolder, path: string, depth: number): void {
  try {
    for (const name of namesIn(walk, folder)) {
      if (!name.startsWith('.') && !LEFT_OUT.has(name)) look(walk, folder, name, joinPath(path, name), depth)
    }
  } finally {
    folder.close()
  }
}

/** As many as there is room for: a folder may hold any number. */
function namesIn(walk: Walk, folder: HeldFolder): string[] {
  const names: string[] = []
  for (const name of listNames(folder)) {
    if (++walk.entries > walk.maxEntries) throw new TooManyEntries()
    if (walk.entries > MAX_ENTRIES) {
      walk.isComplete = false
      break
    }
    names.push(name)
  }
  return names.sort()
}

/** One after another, or at once where there are few for sure. Where nothing is said of its size, it may be any. */
function* listNames({ base, stats }: HeldFolder): Generator<string> {
  if (stats.size > 0 && stats.size <= SMALL_FOLDER_BYTES) {
    yield* readdirSync(base, { encoding: 'latin1' })
    return
  }
  using listing = opendirSync(base, { encoding: 'latin1' })
  for (let entry = listing.readSync(); entry !== null; entry = listing.readSync()) yield entry.name
}

/** What cannot be looked at does not keep the rest from being seen. */
function look(walk: Walk, folder: HeldFolder, name: string, path: string, depth: number): void {
  try {
    const stats = lstatSync(toBytes(childOf(folder, name)), { bigint: true })
    if (stats.isDirectory()) lookInto(walk, folder, name, path, depth)
    else if (stats.isFile()) note(walk, folder, name, path, stats)
  } catch (error) {
    if (error instanceof TooManyEntries || codeOf(error) === '') throw error
    if (!isGone(error)) walk.isComplete = false
  }
}

function lookInto(walk: Walk, folder: HeldFolder, name: string, path: string, depth: number): void {
  if (depth >= MAX_DEPTH) walk.isComplete = false
  else walkFolder(walk, holdFolder(childOf(folder, name)), path, depth + 1)
}

function note(walk: Walk, folder: HeldFolder, name: string, path: string, stats: BigIntStats): void {
  const readable = readablePath(path)
  if (readable === undefined) {
    walk.isComplete = false
    return
  }
  const { ino, size, ctimeNs, mtimeMs } = stats
  const seen = { ino, size: Number(size), ctimeNs, mtimeMs: Number(mtimeMs) }
  walk.files.set(readable, seen)
  walk.visit(folder, name, readable, seen)
}

/** Paths are bytes, kept as Latin-1. Of what is no text, or has control characters, there is no name to tell. */
function readablePath(path: string): string | undefined {
  if (/^[\x20-\x7e]*$/.test(path)) return path
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
      Buffer.from(path, 'latin1'),
    )
    return /\p{Cc}/u.test(text) ? undefined : text
  } catch {
    return undefined
  }
}
