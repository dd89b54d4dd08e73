import { randomUUID } from 'node:crypto'
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'

/** A data directory in use by this process alone. */
export interface DataDir {
  /** Names this host in the database; made once and kept. */
  hostId: string
  release(): void
}

/**
 * Prepares the data directory and takes it: a second server on it is refused. The lock is the operating
 * system's, held through an SQLite file, so that a killed server never leaves it behind.
 */
export async function openDataDir(dataDir: string): Promise<DataDir> {
  await mkdir(dataDir, { recursive: true })
  // Sandbox users pass through on the way to their own folders; they cannot list it.
  await chmod(dataDir, 0o711)
  for (const name of ['agents', 'sandboxes']) {
    await mkdir(join(dataDir, name), { recursive: true })
    await chmod(join(dataDir, name), 0o711)
  }
  // Files of all tenants: nobody but the server looks in there.
  await mkdir(join(dataDir, 'snapshots'), { recursive: true, mode: 0o700 })
  const release = takeLock(dataDir)
  // What was half written when a server was killed, an uploaded archive perhaps.
  await rm(join(dataDir, 'snapshots', 'tmp'), { recursive: true, force: true })
  return { hostId: await readHostId(join(dataDir, 'host-id')), release }
}

function takeLock(dataDir: string): () => void {
  const lock = new DatabaseSync(join(dataDir, 'server.lock'))
  try {
    lock.exec('pragma locking_mode = exclusive; begin exclusive')
  } catch (error) {
    lock.close()
    throw new Error(
      `Another server uses ${dataDir}. Stop it with "ash stop", or set ASH_DATA_DIR (and ASH_PORT) for a second one.`,
      { cause: error },
    )
  }
  return () => lock.close()
}

/**
 * Refuses a folder that another database knows: to this one everything in it would be garbage. The first database to
 * come owns it.
 */
export async function assertSameDatabase(dataDir: string, databaseId: string): Promise<void> {
  const path = join(dataDir, 'database-id')
  if ((await writeOnce(path, databaseId)) === databaseId) return
  throw new Error(
    `${dataDir} holds the files of another database. Set ASH_DATABASE_URL as it was (or not at all, as it was), or ` +
      `ASH_DATA_DIR to a folder of its own. If the files in it may go, delete ${path}.`,
  )
}

const readHostId = (path: string) => writeOnce(path, randomUUID())

/** What the file holds: this, where there is none yet. */
async function writeOnce(path: string, text: string): Promise<string> {
  await writeFile(path, `${text}\n`, { flag: 'wx', mode: 0o600 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error
  })
  return (await readFile(path, 'utf8')).trim()
}
