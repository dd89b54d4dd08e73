import { type FileEntry, MAX_PATH_CHARS } from '@ash-ai/shared'
import type { FileSource } from './checkpoint-files.ts'
import { compileGlob } from './glob.ts'
import type { FileListing } from './list-files.ts'
import { walkFiles } from './walk-files.ts'

/** Comparisons of one character. Some tenths of a second, and far more than sensible patterns need. */
const MAX_STEPS = 100_000_000

/** What below `path` has a name like `query`, in the order of a listing. Links are found, not followed. */
export async function searchFiles(
  source: FileSource,
  { query, path, limit }: { query: string; path?: string | undefined; limit: number },
): Promise<FileListing> {
  const isMatch = compileGlob(query)
  const budget = { stepsLeft: MAX_STEPS }
  const files: FileEntry[] = []
  const isComplete = await walkFiles(source, { path, recursive: true }, ({ entry }) => {
    // A longer path could not be used for anything.
    if (entry.path.length > MAX_PATH_CHARS || !isMatch(entry.path, budget)) return budget.stepsLeft > 0
    if (files.length >= limit) return false
    files.push(entry)
    return true
  })
  return { files, truncated: !isComplete }
}
