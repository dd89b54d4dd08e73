import { realpath, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** Where a sandbox finds the host's programs, which install the packages and run them. */
const FOLDERS = ['/usr/local/bin', '/usr/bin']
const PROGRAMS = ['python3', 'node']

/** Tells these interpreters from others. By their files: running each would slow down every start. */
export async function hostInterpreters(folders = FOLDERS): Promise<string> {
  const paths = folders.flatMap((folder) => PROGRAMS.map((name) => join(folder, name)))
  // A sandbox has the server's own Node where the host has none.
  return [process.versions.modules, ...(await Promise.all(paths.map(describe)))].join(' ')
}

async function describe(path: string): Promise<string> {
  const file = await realpath(path).catch(() => undefined)
  if (file === undefined) return ''
  const { size, mtimeMs } = await stat(file)
  return `${file}:${size}:${mtimeMs}`
}
