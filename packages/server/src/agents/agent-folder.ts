import { createHash, randomUUID } from 'node:crypto'
import { chmod, mkdir, open, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { AshError, isRelativePath, MAX_AGENT_BYTES, MAX_AGENT_FILES, MAX_PATH_CHARS } from '@ash-ai/shared'

/** One file of an agent folder, from wherever it comes. Its content is read before the next is asked for. */
export interface FolderEntry {
  path: string
  isExecutable: boolean
  content: Iterable<Uint8Array> | AsyncIterable<Uint8Array>
}

export interface StagedFolder {
  dir: string
  contentHash: string
  files: number
  bytes: number
}

/** Where the files of a version are. Content-addressed: versions with the same files share it. */
export function agentVersionDir(dataDir: string, tenantId: string, contentHash: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]*$/.test(tenantId)) throw new Error('a tenant id that is not a folder name')
  if (!/^[0-9a-f]{64}$/.test(contentHash)) throw new Error('a content hash that is not one')
  return join(dataDir, 'agents', tenantId, contentHash)
}

/** Not a tenant's folder: their names start with a letter or digit. */
export const stagingRoot = (dataDir: string) => join(dataDir, 'agents', '.staging')

/** Writes the entries to a folder that nobody sees yet. On failure nothing of it is left. */
export async function stageFolder(
  dataDir: string,
  entries: Iterable<FolderEntry> | AsyncIterable<FolderEntry>,
): Promise<StagedFolder> {
  const staging = new Staging(join(stagingRoot(dataDir), randomUUID()))
  try {
    await staging.start()
    for await (const entry of entries) await staging.add(entry)
    return await staging.finish()
  } catch (error) {
    await discardFolder(staging)
    if (isCode(error, 'ENOSPC', 'EDQUOT'))
      throw new AshError('disk_full', 'There is no room left on the server’s disk', { cause: error })
    throw error
  }
}

export async function discardFolder({ dir }: { dir: string }): Promise<void> {
  await rm(dir, { recursive: true, force: true })
}

/** Moves a staged folder to its place in one step; where the same content already is, that stays. */
export async function publishFolder(staged: StagedFolder, target: string): Promise<void> {
  await mkdir(dirname(target), { recursive: true })
  try {
    await rename(staged.dir, target)
  } catch (error) {
    if (!isCode(error, 'ENOTEMPTY', 'EEXIST')) throw error
    await discardFolder(staged)
    return
  }
  await sync(dirname(target))
}

/** A folder being written, and what its content hash is made of. */
class Staging {
  readonly dir: string
  readonly #digests = new Map<string, string>()
  #bytes = 0

  constructor(dir: string) {
    this.dir = dir
  }

  async start(): Promise<void> {
    await mkdir(this.dir, { recursive: true })
    // Explicit, whatever the umask: sandbox users must be able to read the folder.
    await chmod(this.dir, 0o755)
  }

  async add({ path, isExecutable, content }: FolderEntry): Promise<void> {
    if (path.length > MAX_PATH_CHARS || !isRelativePath(path)) throw invalid(path, 'is not a relative path')
    if (this.#digests.has(path)) throw invalid(path, 'appears twice')
    if (this.#digests.size === MAX_AGENT_FILES) throw tooLarge(`${MAX_AGENT_FILES} files`)
    try {
      await this.#makeParents(path)
      const digest = await this.#write(path, isExecutable, content)
      this.#digests.set(path, `${path}\0${isExecutable ? 'x' : '-'}\0${digest}\n`)
    } catch (error) {
      if (isCode(error, 'EEXIST', 'ENOTDIR', 'EISDIR')) throw invalid(path, 'collides with another entry')
      if (isCode(error, 'ENAMETOOLONG')) throw invalid(path, 'has a name that is too long')
      throw error
    }
  }

  async finish(): Promise<StagedFolder> {
    await this.#syncAll()
    const hash = createHash('sha256')
    for (const path of [...this.#digests.keys()].sort()) hash.update(this.#digests.get(path) ?? '')
    return { dir: this.dir, contentHash: hash.digest('hex'), files: this.#digests.size, bytes: this.#bytes }
  }

  async #makeParents(path: string): Promise<void> {
    const parents = path.split('/').slice(0, -1)
    for (let depth = 1; depth <= parents.length; depth++) {
      const parent = join(this.dir, ...parents.slice(0, depth))
      const isNew = (await mkdir(parent, { recursive: true })) !== undefined
      if (isNew) await chmod(parent, 0o755)
    }
  }

  async #write(path: string, isExecutable: boolean, content: FolderEntry['content']): Promise<string> {
    const hash = createHash('sha256')
    await using file = await open(join(this.dir, path), 'wx')
    for await (const chunk of content) {
      this.#bytes += chunk.byteLength
      if (this.#bytes > MAX_AGENT_BYTES) throw tooLarge(`${MAX_AGENT_BYTES} bytes`)
      hash.update(chunk)
      await file.writeFile(chunk)
    }
    await file.chmod(isExecutable ? 0o755 : 0o644)
    return hash.digest('hex')
  }

  /** Together at the end: the file system then writes them in few batches. */
  async #syncAll(): Promise<void> {
    const paths = [...this.#digests.keys()]
    const work = Array.from({ length: SYNCS_AT_ONCE }, async () => {
      for (let path = paths.pop(); path !== undefined; path = paths.pop()) await sync(join(this.dir, path))
    })
    await Promise.all(work)
    await sync(this.dir)
  }
}

const SYNCS_AT_ONCE = 4

async function sync(path: string): Promise<void> {
  await using handle = await open(path, 'r')
  await handle.sync()
}

const invalid = (path: string, problem: string) => new AshError('agent_invalid', `"${path}" ${problem}`)

const tooLarge = (limit: string) =>
  new AshError('payload_too_large', `An agent folder may have at most ${limit}`)

const isCode = (error: unknown, ...codes: string[]) =>
  error instanceof Error && 'code' in error && codes.includes(String(error.code))
