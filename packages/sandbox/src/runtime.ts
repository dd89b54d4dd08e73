import { createHash, randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import {
  chmod,
  copyFile,
  link,
  mkdir,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { AshError } from '@ash-ai/shared'

/** The programs a sandbox needs, copied to where a sandbox user may reach them. */
export interface Runtime {
  dir: string
  node: string
  bridge: string
  /** A folder beside the bridge with its program and the agent SDK. None where the bridge is one file. */
  compiled: string | undefined
  /** A folder beside the bridge with the programs that run code. None where the bridge is one file. */
  kernels: string | undefined
  /** A folder beside the bridge with what makes terminals. None where there are none. */
  pty: string | undefined
  claude: string
  /** Synthetic `/etc` files: the host's own say too much. */
  etc: string
}

export interface RuntimeSource {
  node: string
  /** A file; the folders `compiled` and `pty` beside it belong to it. */
  bridge: string
  /** Folder of the programs that run code; by default `kernels` beside the bridge. */
  kernels?: string
  claude: string
}

/** Without an ending Node finds out for itself what kind of module it is. */
const BRIDGE = 'bridge'
const COMPILED = 'compiled'
const KERNELS = 'kernels'
const PTY = 'pty'
/** Of what lies in those folders: what a build leaves beside it is of no use inside. */
const STAGED = /\.(cjs|mjs|py|pyc|cache|node)$/

const ETC_FILES: Record<string, string> = {
  passwd:
    'ash:x:1000:1000:ash:/home/ash:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n',
  group: 'ash:x:1000:\nnogroup:x:65534:\n',
  hosts: '127.0.0.1 localhost ash\n::1 localhost ash\n',
  'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files\n',
  'resolv.conf': '',
}

/**
 * Puts Node, bridge and `claude` under `<runtimeDir>/<hash>`, once per set of sources. A checkout usually lies
 * below a folder that sandbox users cannot search, so sandboxes never run from it.
 */
export async function stageRuntime(runtimeDir: string, source: RuntimeSource): Promise<Runtime> {
  const root = resolve(runtimeDir)
  const bridge = await readBridge(source)
  const dir = join(root, await sourceHash(source, bridge))
  const runtime = {
    dir,
    node: join(dir, 'node'),
    bridge: join(dir, BRIDGE),
    compiled: hasFolder(bridge, COMPILED) ? join(dir, COMPILED) : undefined,
    kernels: hasFolder(bridge, KERNELS) ? join(dir, KERNELS) : undefined,
    pty: hasFolder(bridge, PTY) ? join(dir, PTY) : undefined,
    claude: join(dir, 'claude'),
    etc: join(dir, 'etc'),
  }
  if (await exists(dir)) return runtime
  await mkdir(root, { recursive: true, mode: 0o711 })
  const staging = join(root, `.staging-${randomBytes(6).toString('hex')}`)
  try {
    await fillStaging(staging, source, bridge)
    await rename(staging, dir)
  } catch (error) {
    // Another server that shares the folder may have been first: its copy is the same.
    if (!(await exists(dir))) throw error
  } finally {
    await rm(staging, { recursive: true, force: true })
  }
  return runtime
}

/** Removes what earlier versions staged here. Only for a folder that no other server uses. */
export async function removeOtherRuntimes({ dir }: Runtime): Promise<void> {
  const root = dirname(dir)
  for (const name of await readdir(root)) {
    if (join(root, name) !== dir) await rm(join(root, name), { recursive: true, force: true })
  }
}

async function fillStaging(staging: string, source: RuntimeSource, bridge: BridgeFiles): Promise<void> {
  const etc = join(staging, 'etc')
  const folders = [etc, ...[COMPILED, KERNELS, PTY].map((name) => join(staging, name))]
  for (const folder of folders) await mkdir(folder, { recursive: true })
  // Execute-only makes the bridge's process non-dumpable: the agent runs under the same user and could
  // otherwise rewrite it through /proc/<pid>/mem.
  await copyFile(source.node, join(staging, 'node'), constants.COPYFILE_FICLONE)
  await chmod(join(staging, 'node'), 0o111)
  for (const [name, content] of bridge) await writeReadOnly(join(staging, name), content)
  await linkOrCopy(source.claude, join(staging, 'claude'))
  for (const [name, text] of Object.entries(ETC_FILES)) await writeReadOnly(join(etc, name), text)
  for (const folder of [...folders, staging]) await chmod(folder, 0o755)
}

/** By chmod, because the umask takes its share of the mode of a new file. */
async function writeReadOnly(path: string, content: string | Buffer): Promise<void> {
  await writeFile(path, content)
  await chmod(path, 0o444)
}

/** Path below the runtime's folder → content. */
type BridgeFiles = ReadonlyMap<string, Buffer>

async function readBridge(source: RuntimeSource): Promise<BridgeFiles> {
  const files = new Map([[BRIDGE, await readFile(source.bridge)]])
  const beside = dirname(source.bridge)
  const folders = {
    [COMPILED]: join(beside, COMPILED),
    [KERNELS]: source.kernels ?? join(beside, KERNELS),
    [PTY]: join(beside, PTY),
  }
  for (const [key, folder] of Object.entries(folders)) {
    const names = await readdir(folder).catch(ignoreMissing)
    for (const name of names.filter((each) => STAGED.test(each)).sort()) {
      files.set(join(key, name), await readFile(join(folder, name)))
    }
  }
  return files
}

const hasFolder = (bridge: BridgeFiles, name: string) =>
  [...bridge.keys()].some((path) => path.startsWith(`${name}/`))

function ignoreMissing(error: NodeJS.ErrnoException): string[] {
  if (error.code !== 'ENOENT') throw error
  return []
}

/** `claude` has 350 MB: a hard link where the file system allows it. */
async function linkOrCopy(from: string, to: string): Promise<void> {
  const { mode } = await stat(from)
  const isUsableAsIs = (mode & 0o005) === 0o005
  try {
    if (isUsableAsIs) return await link(from, to)
  } catch {
    // Another device, or links are not allowed here: copy.
  }
  await copyFile(from, to, constants.COPYFILE_FICLONE)
  await chmod(to, 0o555)
}

/** Node and `claude` are known by path, size and time (hashing half a gigabyte costs a second), the bridge by content. */
async function sourceHash(source: RuntimeSource, bridge: BridgeFiles): Promise<string> {
  const hash = createHash('sha256')
  for (const file of [source.node, source.claude]) {
    const { size, mtimeMs } = await stat(file)
    hash.update(`${file}\0${size}\0${mtimeMs}\0`)
  }
  for (const [name, content] of bridge) {
    // Made from the rest, and never twice the same.
    if (!/\.(cache|pyc)$/.test(name)) hash.update(`${name}\0${content.length}\0`).update(content)
  }
  hash.update(JSON.stringify(ETC_FILES))
  return hash.digest('hex').slice(0, 16)
}

/**
 * A user of a sandbox must be able to search every folder above what it uses; descriptors do not help.
 * Throws, naming the folder to open up.
 */
export async function assertReachable(path: string): Promise<void> {
  // Links are followed to their end: the folders above both names are in the way.
  for (const folder of new Set([...foldersTo(resolve(path)), ...foldersTo(await realpath(path))])) {
    const { mode } = await stat(folder)
    if ((mode & 0o001) !== 0) continue
    throw new AshError(
      'provider_unavailable',
      `Sandbox users cannot reach ${path}: ${folder} has mode ${(mode & 0o777).toString(8).padStart(4, '0')}. ` +
        `Run "chmod o+x ${folder}", or set ASH_DATA_DIR to a folder such as /var/lib/ash.`,
    )
  }
}

/** The path itself and every folder above it, from the root down. */
function foldersTo(path: string): string[] {
  const above = dirname(path)
  return above === path ? [path] : [...foldersTo(above), path]
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}
