import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)
const MAX_ROUNDS = 20

interface Process {
  pid: number
  parent: number
  group: number
  /** Has the marker in its environment. */
  isMarked: boolean
}

/**
 * Kills a child, its descendants, the process groups they lead and, where the system shows environments,
 * whatever else was started with the marker. Only for what no namespace holds together: a process that hid
 * its descent and its environment stays.
 */
export async function killTree(child: { pid: number; isGone: boolean }, marker: string): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const isRootAlive = round === 0 && !child.isGone
    const doomed = findTree(await listProcesses(marker), isRootAlive ? child.pid : undefined)
    if (doomed.length === 0) return
    for (const pid of doomed) tryKill(pid)
  }
}

function findTree(processes: Process[], root: number | undefined): number[] {
  const found = new Set(processes.filter((one) => one.pid === root || one.isMarked).map((one) => one.pid))
  for (let size = -1; size !== found.size; ) {
    size = found.size
    for (const { pid, parent, group } of processes) {
      if (found.has(parent) || found.has(group)) found.add(pid)
    }
  }
  return [...found]
}

function tryKill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // Gone already.
  }
}

async function listProcesses(marker: string): Promise<Process[]> {
  if (process.platform === 'linux') {
    const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
    return (await Promise.all(names.map((name) => readProcess(Number(name), marker)))).flat()
  }
  const { stdout } = await run('ps', ['-A', '-o', 'pid=,ppid=,pgid='], { maxBuffer: 16 * 1024 * 1024 })
  return stdout
    .trim()
    .split('\n')
    .map((line) => {
      const [pid = 0, parent = 0, group = 0] = line.trim().split(/\s+/).map(Number)
      return { pid, parent, group, isMarked: false }
    })
}

async function readProcess(pid: number, marker: string): Promise<Process[]> {
  try {
    // pid (name) state parent group …, where a name may hold anything.
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1')
    const [state, parent, group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (state === 'Z' || state === 'X') return []
    const environ = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '')
    const isMarked = environ.split('\0').includes(marker)
    return [{ pid, parent: Number(parent), group: Number(group), isMarked }]
  } catch {
    return [] // Gone meanwhile.
  }
}
