import { randomUUID } from 'node:crypto'
import { mkdir, open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf } from './checkpoint-fault.ts'
import { tenantPath } from './local-blobs.ts'

/**
 * A random value that changes before any blob of the tenant may be deleted. While it is the same, a blob that was there
 * is there: a checkpoint of unchanged files need not look for each. It is lost with the blobs, too.
 */
export async function readGeneration(dir: string, tenantId: string): Promise<string> {
  try {
    return await readFile(generationPath(dir, tenantId), 'utf8')
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error
    return writeGeneration(dir, tenantId, { sync: false })
  }
}

export async function writeGeneration(
  dir: string,
  tenantId: string,
  { sync }: { sync: boolean },
): Promise<string> {
  const generation = randomUUID()
  await mkdir(tenantPath(dir, tenantId), { recursive: true, mode: 0o700 })
  await using file = await open(generationPath(dir, tenantId), 'w', 0o600)
  await file.writeFile(generation)
  if (sync) await file.sync()
  return generation
}

const generationPath = (dir: string, tenantId: string) => join(tenantPath(dir, tenantId), 'generation')
