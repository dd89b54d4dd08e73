import { execFile } from 'node:child_process'
import { mkdtemp, open, rm, stat, truncate } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const CHUNK = Buffer.alloc(64 * 1024, 'full')

/** A file system of its own that a test can fill. */
export interface SmallDisk {
  path: string
  /** Leaves so much free and no more. */
  fill(room?: { leaveBytes: number }): Promise<void>
  empty(): Promise<void>
  remove(): Promise<void>
}

export async function mountSmallDisk(sizeMb: number): Promise<SmallDisk> {
  const path = await mkdtemp(join(tmpdir(), 'ash-small-disk-'))
  await run('mount', ['-t', 'tmpfs', '-o', `size=${sizeMb}m,mode=0755`, 'tmpfs', path])
  const filler = join(path, 'filler')
  return {
    path,
    fill: async ({ leaveBytes } = { leaveBytes: 0 }) => {
      await fill(filler)
      await truncate(filler, (await stat(filler)).size - leaveBytes)
    },
    empty: () => rm(filler, { force: true }),
    async remove() {
      await run('umount', ['--recursive', path])
      await rm(path, { recursive: true })
    },
  }
}

async function fill(path: string): Promise<void> {
  const file = await open(path, 'a')
  try {
    for (let size = CHUNK.length; size > 0; ) {
      const fits = await file.write(CHUNK, 0, size).then(
        () => true,
        (error: NodeJS.ErrnoException) => {
          if (error.code !== 'ENOSPC') throw error
          return false
        },
      )
      if (!fits) size = Math.floor(size / 2)
    }
  } finally {
    await file.close()
  }
}
