import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs'

/** Of an environment, no more is searched for a mark. */
const MAX_ENVIRON_BYTES = 256 * 1024

/** A process that runs, or is stopped; what has ended and is not collected yet does not count. */
export interface ProcessEntry {
  pid: number
  parent: number
  group: number
  session: number
  /** Tells a process from another that gets its number later. */
  startTime: string
  /** Of the process and the children it has waited for. */
  cpuTicks: number
}

/** Everything that can be seen to run. */
export function readProcesses(): ProcessEntry[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => readProcess(Number(name)) ?? [])
}

export function readProcess(pid: number): ProcessEntry | undefined {
  const stat = readIfThere(`/proc/${pid}/stat`)
  // The name stands in parentheses and may hold anything, also spaces and parentheses.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ')
  const [state, parent, group, session] = fields ?? []
  if (fields === undefined || state === undefined || 'ZXx'.includes(state)) return undefined
  const cpuTicks = fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0)
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    session: Number(session),
    startTime: fields[19] ?? '',
    cpuTicks,
  }
}

/** Those it has started and not waited for; none where the kernel does not tell. */
export function readChildren(pid: number): number[] {
  const threads = listIfThere(`/proc/${pid}/task`)
  const lists = threads.map((thread) => readIfThere(`/proc/${pid}/task/${thread}/children`) ?? '')
  return lists.flatMap((list) => list.split(' ').filter(Boolean).map(Number))
}

/** Whether the environment it began with has that variable; false where it cannot be read. */
export function hasMark(pid: number, mark: string): boolean {
  let file: number
  try {
    file = openSync(`/proc/${pid}/environ`, 'r')
  } catch {
    return false // Gone, or somebody else's.
  }
  try {
    const buffer = Buffer.allocUnsafe(MAX_ENVIRON_BYTES)
    let size = 0
    for (let read = -1; read !== 0 && size < buffer.length; size += read) {
      read = readSync(file, buffer, size, buffer.length - size, null)
    }
    return `\0${buffer.toString('latin1', 0, size)}\0`.includes(`\0${mark}\0`)
  } catch {
    return false
  } finally {
    closeSync(file)
  }
}

function listIfThere(path: string): string[] {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}

export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined // Gone, or not for this user to see.
  }
}
