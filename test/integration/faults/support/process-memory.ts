import { readFile, writeFile } from 'node:fs/promises'

const RESET_PEAK = '5'

/** Starts to watch the memory of a process; the function returned says by how many bytes its peak went up since. */
export async function watchPeakMemory(pid: number): Promise<() => Promise<number>> {
  await writeFile(`/proc/${pid}/clear_refs`, RESET_PEAK)
  const before = await readStatus(pid, 'VmRSS')
  return async () => (await readStatus(pid, 'VmHWM')) - before
}

async function readStatus(pid: number, field: 'VmRSS' | 'VmHWM'): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024
}
