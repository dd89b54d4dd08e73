import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { root } from '../../scripts/lib/workspace.mjs'

/** What the guest needs to reach its disk and the host's files, and for what Ash mounts. */
const MODULES = [
  'virtio_pci',
  'virtio_blk',
  '9pnet_virtio',
  '9p',
  'ext4',
  'crc32c_generic',
  'overlay',
  'loop',
]
const INIT = new URL('./guest/init', import.meta.url)

interface Entry {
  path: string
  mode: number
  data: Buffer
}

/** Busybox, the modules in the order in which they can be loaded, and `guest/init`, from unpacked Debian packages. */
export async function buildInitramfs(packages: string, kernelRelease: string): Promise<Buffer> {
  const busybox = join(packages, 'bin', 'busybox')
  const folder = join(packages, 'lib', 'modules', kernelRelease)
  const list = join(folder, 'modules.dep')
  if (!existsSync(list)) execFileSync(busybox, ['depmod', '-b', packages, kernelRelease])
  const modules = orderModules(await readFile(list, 'utf8'))
  const order = modules.map((path) => `${basename(path)}\n`).join('')
  return archive([
    { path: 'bin', mode: 0o040755, data: Buffer.alloc(0) },
    { path: 'bin/busybox', mode: 0o100755, data: await readFile(busybox) },
    { path: 'init', mode: 0o100755, data: await readFile(INIT) },
    { path: 'checkout-path', mode: 0o100644, data: Buffer.from(root) },
    { path: 'modules', mode: 0o040755, data: Buffer.alloc(0) },
    { path: 'modules/order', mode: 0o100644, data: Buffer.from(order) },
    ...(await Promise.all(
      modules.map(async (path) => ({
        path: `modules/${basename(path)}`,
        mode: 0o100644,
        data: await readFile(join(folder, path)),
      })),
    )),
  ])
}

/** The modules wanted and all they depend on, each after its dependencies. What is built in is not in the list. */
function orderModules(modulesDep: string): string[] {
  const dependencies = new Map<string, string[]>()
  for (const line of modulesDep.split('\n')) {
    const [path, rest = ''] = line.split(':')
    if (path) dependencies.set(path, rest.split(' ').filter(Boolean))
  }
  const ordered = new Set<string>()
  const add = (path: string) => {
    if (ordered.has(path)) return
    for (const dependency of dependencies.get(path) ?? []) add(dependency)
    ordered.add(path)
  }
  for (const name of MODULES) {
    const path = [...dependencies.keys()].find((candidate) => basename(candidate).split('.')[0] === name)
    if (path !== undefined) add(path)
  }
  return [...ordered]
}

/** A cpio archive in the format that the kernel unpacks ("newc"): no tool for it need be there. */
function archive(entries: Entry[]): Buffer {
  const files = [...entries, { path: 'TRAILER!!!', mode: 0, data: Buffer.alloc(0) }]
  return Buffer.concat(files.flatMap((entry, index) => [header(entry, index + 1), padded(entry.data)]))
}

function header({ path, mode, data }: Entry, inode: number): Buffer {
  const name = `${path}\0`
  const fields = [inode, mode, 0, 0, 1, 0, data.length, 0, 0, 0, 0, Buffer.byteLength(name), 0]
  const text = fields.map((value) => value.toString(16).padStart(8, '0')).join('')
  return padded(Buffer.from(`070701${text}${name}`))
}

const padded = (data: Buffer) => Buffer.concat([data, Buffer.alloc(-data.length & 3)])
