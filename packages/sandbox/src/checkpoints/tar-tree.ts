import { CheckpointFault, displayPath } from './checkpoint-fault.ts'
import { type Chunk, type Entry, type Manifest, ROOT_NAMES, type RootName } from './manifest-entry.ts'

/** A file under all of its names: hard links are the same object. */
export interface FileNode {
  type: 'file'
  mode: number
  mtimeUs: number
  size: number
  chunks: Chunk[]
}

interface LinkNode {
  type: 'link'
  mtimeUs: number
  target: string
}

interface FolderNode {
  type: 'directory'
  mode: number
  mtimeUs: number
  children: Map<string, TreeNode>
}

export type TreeNode = FileNode | LinkNode | FolderNode

const ROOT_MODE = 0o700
const FOLDER_MODE = 0o755

export const newFolder = (mode = FOLDER_MODE, mtimeUs = Date.now() * 1000): FolderNode => ({
  type: 'directory',
  mode,
  mtimeUs,
  children: new Map(),
})

/** The folders of a checkpoint, while an archive is laid over its workspace. Paths are Latin-1, as in manifests. */
export class CheckpointTree {
  readonly #roots = { workspace: newFolder(ROOT_MODE), home: newFolder(ROOT_MODE) }
  /** Entries that may still be added. */
  #room: number

  constructor(maxEntries: number) {
    this.#room = maxEntries
  }

  /** Takes over another checkpoint, its workspace only if asked for. */
  load(manifest: Manifest, { withWorkspace }: { withWorkspace: boolean }): void {
    const files: Record<RootName, Map<string, FileNode>> = { workspace: new Map(), home: new Map() }
    for (const root of ROOT_NAMES) {
      for (const entry of manifest[root]) {
        const node = toNode(entry, files)
        if (node.type === 'file') files[root].set(entry.path, node)
        if (entry.path === '' && node.type === 'directory') this.#roots[root] = node
        else if (root === 'home' || withWorkspace) this.#parentOf(root, entry.path, newFolder).put(node)
      }
    }
  }

  /** Puts something into the workspace. What was there goes, with all below it, unless both are folders. */
  place(path: string, node: TreeNode): void {
    const makeFolder = () => {
      this.#take(path)
      return newFolder()
    }
    const { there, put } = this.#parentOf('workspace', path, makeFolder)
    if (there?.type === 'directory' && node.type === 'directory') {
      there.mode = node.mode
      there.mtimeUs = node.mtimeUs
      return
    }
    this.#take(path)
    put(node)
  }

  /** A file of the workspace, by any of its names. */
  findFile(path: string): FileNode | undefined {
    let node: TreeNode | undefined = this.#roots.workspace
    for (const name of path.split('/')) {
      node = node?.type === 'directory' ? node.children.get(name) : undefined
    }
    return node?.type === 'file' ? node : undefined
  }

  toManifest(): Manifest {
    const names = new Map<FileNode, { root: RootName; of: string }>()
    const manifest: Manifest = { workspace: [], home: [] }
    for (const root of ROOT_NAMES) addEntries(manifest, root, '', this.#roots[root], names)
    return manifest
  }

  /** The place of a path. Folders on the way are made; what is in the way of one, a link too, makes room for it. */
  #parentOf(root: RootName, path: string, makeFolder: () => FolderNode) {
    const names = path.split('/')
    const name = names.pop() ?? ''
    let folder = this.#roots[root]
    for (const part of names) {
      const child = folder.children.get(part)
      const next = child?.type === 'directory' ? child : makeFolder()
      if (next !== child) folder.children.set(part, next)
      folder = next
    }
    const { children } = folder
    return { there: children.get(name), put: (node: TreeNode) => void children.set(name, node) }
  }

  #take(path: string): void {
    this.#room--
    if (this.#room >= 0) return
    throw new CheckpointFault(
      'payload_too_large',
      `The archive has too many entries, "${displayPath(path)}" among them`,
    )
  }
}

function toNode(entry: Entry, files: Record<RootName, Map<string, FileNode>>): TreeNode {
  switch (entry.type) {
    case 'directory':
      return newFolder(entry.mode, entry.mtimeUs)
    case 'link':
      return { type: 'link', mtimeUs: entry.mtimeUs, target: entry.target }
    case 'file': {
      const { type, mode, mtimeUs, size, chunks } = entry
      return { type, mode, mtimeUs, size, chunks }
    }
    case 'hardlink': {
      const file = files[entry.root].get(entry.of)
      if (!file) throw new Error(`A hard link to no file: ${entry.path}`)
      return file
    }
  }
}

/** Each folder before its content, names in the order of their bytes. */
function addEntries(
  manifest: Manifest,
  root: RootName,
  path: string,
  node: TreeNode,
  names: Map<FileNode, { root: RootName; of: string }>,
): void {
  const entries = manifest[root]
  if (node.type === 'link') entries.push({ path, ...node })
  if (node.type === 'file') {
    const first = names.get(node)
    if (!first) names.set(node, { root, of: path })
    entries.push(first ? { type: 'hardlink', path, ...first } : { path, ...node })
  }
  if (node.type !== 'directory') return
  const { type, mode, mtimeUs, children } = node
  entries.push({ type, path, mode, mtimeUs })
  for (const name of [...children.keys()].sort()) {
    const child = children.get(name)
    if (child) addEntries(manifest, root, path === '' ? name : `${path}/${name}`, child, names)
  }
}
