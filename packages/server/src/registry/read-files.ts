import { open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { didYouMean, type Fault } from './fault.ts'
import { SourceFile } from './source-file.ts'

export const KINDS = ['environments', 'agents', 'tools', 'prompts'] as const
export type Kind = (typeof KINDS)[number]

export interface RegistryFiles {
  files: Record<Kind, SourceFile[]>
  faults: Fault[]
}

const MAX_FILES = 500
const MAX_FILE_KB = 256

/** Every YAML file of a registry, in order of name. What cannot be read is among the faults. */
export async function readRegistryFiles(dir: string): Promise<RegistryFiles> {
  const files: RegistryFiles['files'] = { environments: [], agents: [], tools: [], prompts: [] }
  const entries = await listFolder(dir)
  if (entries === undefined) return { files, faults: [wholeFile(dir, 'there is no such folder')] }
  const faults = entries.filter(isUnknownFolder).map(({ name }) => wholeFile(`${name}/`, unknownFolder(name)))
  const paths = await listYaml(dir)
  if (paths.length > MAX_FILES) faults.push(wholeFile(dir, `has more than ${MAX_FILES} files`))
  for (const { kind, path } of paths.slice(0, MAX_FILES)) {
    const text = await readText(join(dir, path))
    if (typeof text !== 'string') faults.push(wholeFile(path, text.problem))
    else {
      const file = new SourceFile(path, text)
      files[kind].push(file)
      faults.push(...file.faults)
    }
  }
  return { files, faults }
}

/** A file of the registry as text, or what is wrong with it. */
export async function readText(path: string): Promise<string | { problem: string }> {
  try {
    await using file = await open(path)
    const stat = await file.stat()
    if (!stat.isFile()) return { problem: 'is not a file' }
    if (stat.size > MAX_FILE_KB * 1024) return { problem: `is larger than ${MAX_FILE_KB} KB` }
    const bytes = await file.readFile()
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (error) {
    if (error instanceof TypeError) return { problem: 'is not UTF-8 text' }
    return { problem: `cannot be read (${codeOf(error)})` }
  }
}

async function listYaml(dir: string): Promise<{ kind: Kind; path: string }[]> {
  const found = KINDS.map(async (kind) => {
    const entries = (await listFolder(join(dir, kind))) ?? []
    const names = entries.map(({ name }) => name).filter((name) => /^[^.].*\.ya?ml$/.test(name))
    return names.sort().map((name) => ({ kind, path: join(kind, name) }))
  })
  return (await Promise.all(found)).flat()
}

interface FolderItem {
  name: string
  isDirectory(): boolean
}

/** A folder misspelt would else be a registry without those items. */
const isUnknownFolder = (entry: FolderItem) =>
  entry.isDirectory() && !entry.name.startsWith('.') && !KINDS.some((kind) => kind === entry.name)

const unknownFolder = (name: string) => `is none of ${KINDS.join(', ')}${didYouMean(name, KINDS)}`

async function listFolder(path: string): Promise<FolderItem[] | undefined> {
  try {
    return await readdir(path, { withFileTypes: true })
  } catch (error) {
    if (codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR') return undefined
    throw error
  }
}

const wholeFile = (file: string, message: string): Fault => ({ file, line: 1, column: 1, field: '', message })

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code
