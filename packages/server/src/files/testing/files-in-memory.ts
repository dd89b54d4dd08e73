import { Readable } from 'node:stream'
import { AshError, type FileEntry } from '@ash-ai/shared'
import type { CheckpointFiles } from '../checkpoint-files.ts'
import type { FileListing } from '../list-files.ts'

/** Stands in for a checkpoint: files by path, all of the same time. With `damage`, none of them can be read. */
export class FilesInMemory implements CheckpointFiles {
  readonly #files: Map<string, Buffer>
  readonly #folders: Set<string>
  readonly #modifiedAt: Date
  readonly #damage: Error | undefined

  constructor(contents: Record<string, string | Buffer>, modifiedAt: Date, damage?: Error) {
    this.#files = new Map(Object.entries(contents).map(([path, content]) => [path, Buffer.from(content)]))
    this.#folders = new Set([...this.#files.keys()].flatMap(parentsOf))
    this.#modifiedAt = modifiedAt
    this.#damage = damage
  }

  async list({ path, limit }: { path?: string; limit: number }): Promise<FileListing> {
    if (path !== undefined) this.#assertFolder(path)
    const prefix = path === undefined ? '' : `${path}/`
    const below = [...this.#folders, ...this.#files.keys()].filter((name) => name.startsWith(prefix))
    // As a checkpoint has them: a slash counts as less than any character of a name.
    below.sort((a, b) => (a.replaceAll('/', '\0') < b.replaceAll('/', '\0') ? -1 : 1))
    return { files: below.slice(0, limit).map((name) => this.#entry(name)), truncated: below.length > limit }
  }

  async open(path: string) {
    for (const parent of parentsOf(path)) this.#assertFolder(parent)
    const content = this.#files.get(path)
    if (this.#folders.has(path)) throw new AshError('not_a_file', `"${path}" is a folder`)
    if (!content) throw new AshError('file_not_found', `"${path}" does not exist`)
    const stream = () => Readable.from(this.#read(content))
    return { size: content.length, modifiedAt: this.#modifiedAt, stream }
  }

  async *#read(content: Buffer): AsyncGenerator<Buffer> {
    if (this.#damage) throw this.#damage
    yield content
  }

  #assertFolder(path: string): void {
    if (this.#files.has(path)) throw new AshError('path_invalid', `"${path}" is a file`)
    if (!this.#folders.has(path)) throw new AshError('file_not_found', `"${path}" does not exist`)
  }

  #entry(path: string): FileEntry {
    const content = this.#files.get(path)
    const modifiedAt = this.#modifiedAt.toISOString()
    return { path, type: content ? 'file' : 'directory', size: content?.length ?? 0, modifiedAt }
  }
}

function parentsOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
}
