import { mkdirSync, readFileSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'
import {
  ignoreMissing,
  killPids,
  readFieldNow,
  removeGroup,
  writeControl,
  writeControlNow,
} from './cgroup-files.ts'

/** Part of a sandbox, held together by a control group of its own: whatever it does, it cannot leave. */
export interface Enclosure {
  /** Of everything that has ever run in it. Read at once: it is asked before and after each run. */
  cpuMs(): number
  /** Kills everything in it; resolves when it is gone. Safe to call again. */
  kill(): Promise<void>
  /** After the last process is gone. */
  remove(): Promise<void>
}

/**
 * Moves a process into a new group below the sandbox's own, on the unified hierarchy. It has no controllers, so the
 * limits of the sandbox go on holding for all of it together. At once: a pid read a moment ago still means the same.
 */
export function encloseBelow(sandboxGroup: string, name: string, hostPid: number): Enclosure {
  const folder = join(sandboxGroup, name)
  mkdirSync(folder)
  try {
    writeControlNow(folder, 'cgroup.procs', hostPid)
  } catch (error) {
    rmdirSync(folder)
    throw error
  }
  return {
    cpuMs: () => readFieldNow(folder, 'cpu.stat', 'usage_usec') / 1000,
    async kill() {
      await writeControl(folder, 'cgroup.kill', 1).catch(ignoreMissing)
      await killPids(folder) // Kernels before 5.14 lack the file.
    },
    remove: () => removeGroup(folder),
  }
}

/** Of those pids of the host, the one that a sandbox knows by that number; undefined where there is none. */
export function findHostPid(hostPids: number[], insidePid: number): number | undefined {
  // From the end, where the newest usually is.
  return hostPids.findLast((pid) => pidInside(pid) === insidePid)
}

/** In the namespace one below that of this process, which is the sandbox's. */
function pidInside(hostPid: number): number | undefined {
  try {
    const status = readFileSync(`/proc/${hostPid}/status`, 'latin1')
    const inside = /^NSpid:\t\d+\t(\d+)/m.exec(status)?.[1]
    return inside === undefined ? undefined : Number(inside)
  } catch {
    return undefined // Gone meanwhile.
  }
}
