import { randomUUID } from 'node:crypto'
import { link, mkdir, open, rm } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Creates a file that only its owner can read, complete or not at all. A file already there is left alone,
 * and of several callers at once one wins. Says whether this call made it.
 */
export async function createPrivateFile(path: string, content: string): Promise<boolean> {
  await mkdir(dirname(path), { recursive: true })
  const temporary = `${path}.${randomUUID()}`
  try {
    await writeDurably(temporary, content)
    await link(temporary, path)
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false
    throw error
  } finally {
    await rm(temporary, { force: true })
  }
}

async function writeDurably(path: string, content: string): Promise<void> {
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(content)
    await file.sync()
  } finally {
    await file.close()
  }
}
