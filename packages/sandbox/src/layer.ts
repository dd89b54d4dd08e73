import { execFile } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { AshError } from '@ash-ai/shared'
import { INODES_PER_MB } from './limits/disk/disk-backend.ts'
import type { Owner } from './provider.ts'

const execute = promisify(execFile)
/** Tools say what went wrong in English, which is read below. */
const ENV = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' }
const TIMEOUT_MS = 10 * 60_000

/** Workspace and home as the set-up of an agent left them. Private to the server, and never changed. */
export interface Layer {
  workspace: string
  home: string
}

export interface LayerSize {
  kilobytes: number
  /** Files, folders and links. */
  entries: number
}

/** The smallest `limits.diskMb` with room for it: blocks, and files however small. */
export const roomMb = ({ kilobytes, entries }: LayerSize) =>
  Math.max(Math.ceil(kilobytes / 1024), Math.ceil(entries / INODES_PER_MB))

export const layerIn = (dir: string): Layer => ({
  workspace: join(dir, 'workspace'),
  home: join(dir, 'home'),
})

/**
 * Keeps what a sandbox left in its folders as a layer in `dir`, which must not exist. Only when nothing runs in it:
 * what is in there is hostile, and the tools below rely on it standing still. They follow no links.
 */
export async function keepLayer(from: Layer, dir: string, diskMb: number): Promise<LayerSize> {
  const layer = layerIn(dir)
  const folders = [from.workspace, from.home]
  await tidy(folders)
  const size = { kilobytes: await sumUp(['-k'], folders), entries: await sumUp(['--inodes'], folders) }
  // Where only a count from time to time holds it to its limit, there may be more than that.
  if (roomMb(size) > diskMb) throw tooLarge(roomMb(size), diskMb)
  await mkdir(dir, { mode: 0o700 })
  await copyTree(from.workspace, layer.workspace)
  await copyTree(from.home, layer.home)
  await writeFile(join(dir, 'size.json'), JSON.stringify(size))
  // A layer that appears is whole, also after a power cut.
  await run('sync', ['-f', '--', dir])
  return size
}

/**
 * Copies a tree. Links are copied as links, and files that are one file in the source are one in the copy; holes stay
 * holes. Neither owners nor access lists nor extended attributes come along. Throws `disk_full` without room.
 */
export async function copyTree(from: string, to: string, owner?: Owner): Promise<void> {
  const options = ['--recursive', '--no-dereference', '--preserve=links,timestamps', '--sparse=auto']
  try {
    await run('cp', [...options, '--reflink=auto', '--no-target-directory', '--', from, to])
  } catch (error) {
    const { stderr = '' } = error as { stderr?: string }
    if (!/No space left on device|Disk quota exceeded/.test(stderr)) throw error
    throw noRoom(error)
  }
  if (owner) await run('chown', ['-R', '-P', '-h', `${owner.uid}:${owner.gid}`, '--', to])
}

/** What a copy must not have: bits that lend rights, pipes, sockets and devices, and what cannot be read. */
async function tidy(folders: string[]): Promise<void> {
  await run('chmod', ['-R', 'u+rwX,u-s,g-s', '--', ...folders])
  const special = ['!', '-type', 'f', '!', '-type', 'd', '!', '-type', 'l']
  await run('find', ['-P', ...folders, '-xdev', ...special, '-delete'])
}

/** Together, so that files with a name in each are counted once. */
async function sumUp(options: string[], folders: string[]): Promise<number> {
  const { stdout } = await run('du', ['-s', '-c', '-x', ...options, '--', ...folders])
  return Number.parseInt(stdout.trimEnd().split('\n').at(-1) ?? '', 10)
}

const tooLarge = (takesMb: number, diskMb: number) =>
  new AshError(
    'disk_full',
    `What the set-up made takes ${takesMb} MB, more than the limits.diskMb of ${diskMb}. ` +
      'Raise that in ash.json, or let install.sh delete what no session needs.',
  )

const noRoom = (cause: unknown) =>
  new AshError(
    'disk_full',
    'There is no room for a copy of what the set-up made. Raise limits.diskMb, or make room on the disk of the server.',
    { cause },
  )

const run = (tool: string, args: string[]) => execute(tool, args, { env: ENV, cwd: '/', timeout: TIMEOUT_MS })
