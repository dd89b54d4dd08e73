import { ARCHITECTURES } from '../seccomp/compile.ts'
import { numbersOf } from '../seccomp/syscall-table.ts'

/** The number of a system call on this machine. */
export function syscallNumber(name: string): number {
  const table = ARCHITECTURES[process.arch]?.table
  const number = table && numbersOf(table).get(name)
  if (number === undefined) throw new Error(`no system call ${name} on ${process.arch}`)
  return number
}
