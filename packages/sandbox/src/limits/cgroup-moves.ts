import { readFileSync } from 'node:fs'
import { writeControl } from './cgroup-files.ts'

/**
 * Before the kernel moves a process between groups it waits until all CPUs have taken notice, 5 to 20 ms; for about
 * as long, further moves need not wait again. This makes it wait ahead of time, by a move of the server itself to the
 * group in which it is, so that the first process of a sandbox finds the wait behind it.
 */
export function moveExpecter(ownGroup: string): () => void {
  const groups = readOwnGroups()
  let isExpecting = false
  const settled = () => {
    isExpecting = false
  }
  return () => {
    // One at a time: each keeps one of the few threads for files busy. And not for a server that somebody has moved.
    if (isExpecting || groups === '' || readOwnGroups() !== groups) return
    isExpecting = true
    writeControl(ownGroup, 'cgroup.procs', process.pid).then(settled, settled)
  }
}

function readOwnGroups(): string {
  try {
    return readFileSync('/proc/self/cgroup', 'latin1')
  } catch {
    return ''
  }
}
