import { readFileSync } from 'node:fs'
import { codeOf } from './checkpoint-fault.ts'

/**
 * Inodes that these processes have mapped shared; one that is read-only now may be written to later. A page that is dirty already can be written again
 * without a new ctime, so their files must be read whatever their times say. Undefined where a process does not
 * let us look.
 */
export function mappedInodes(pids: readonly number[]): Set<number> | undefined {
  const inodes = new Set<number>()
  for (const pid of pids) {
    const maps = readMaps(pid)
    if (maps === undefined) return undefined
    // address, permissions, offset, device, inode, path
    for (const [, inode] of maps.matchAll(/^\S+ ...s \S+ \S+ (\d+)/gm)) inodes.add(Number(inode))
  }
  return inodes
}

function readMaps(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/maps`, 'latin1')
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes(codeOf(error))) return ''
    return undefined
  }
}
