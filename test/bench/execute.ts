import { memory } from './execute/memory.ts'
import { kernel, single } from './execute/single.ts'
import { burst, throughput } from './execute/throughput.ts'
import { runParts } from './support/run-parts.ts'

const PARTS = { single, kernel, throughput, burst, memory }

/** What it takes to run a line of code, once or in an interpreter that stays. */
export async function execute(names: string[]): Promise<string[]> {
  return [...INTRODUCTION, ...(await runParts('execute', PARTS, names))]
}

const INTRODUCTION = [
  'Ash runs whole: HTTP, keys, SQLite, log, bwrap, system call filter, control groups, disk images. Floors run in the same',
  'turns, on the same machine.',
]
