import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** A folder that other users may search, gone when the test is over. */
export async function tempDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-sandbox-'))
  onTestFinished(() => rm(dir, { recursive: true, force: true }))
  await chmod(dir, 0o755)
  return dir
}
