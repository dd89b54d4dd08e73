import { readdir, readFile, readlink } from 'node:fs/promises'

export interface ProcessInfo {
  pid: number
  parent: number
  /** The user it runs as on the host. */
  uid: number
  args: string[]
  environ: string[]
}

/** Every live process that this test may look at. */
export async function listProcesses(): Promise<ProcessInfo[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  return (await Promise.all(pids.map(describeProcess))).flat()
}

/** The process and all below it. */
export async function listTree(root: number): Promise<ProcessInfo[]> {
  const all = await listProcesses()
  const below = (pid: number): ProcessInfo[] =>
    all.filter(({ parent }) => parent === pid).flatMap((child) => [child, ...below(child.pid)])
  return [...all.filter(({ pid }) => pid === root), ...below(root)]
}

/** What the descriptors of a process lead to. */
export async function listDescriptors(pid: number): Promise<string[]> {
  const fds = await readdir(`/proc/${pid}/fd`)
  return Promise.all(fds.map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')))
}

async function describeProcess(pid: number): Promise<ProcessInfo[]> {
  try {
    const status = await readFile(`/proc/${pid}/status`, 'utf8')
    if (/^State:\s+[ZX]/m.test(status)) return []
    const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1])
    const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').slice(0, -1)
    const environ = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '')
    return [
      { pid, parent: field('PPid'), uid: field('Uid'), args, environ: environ.split('\0').slice(0, -1) },
    ]
  } catch {
    return [] // Gone meanwhile.
  }
}
