import { closeSync, constants, mkdirSync, openSync, readdirSync, readFileSync, writeSync } from 'node:fs'
import { readdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const REMOVE_TRIES = 100
const REMOVE_RETRY_MS = 10

/**
 * A number from a control file that holds only one; 0 where the file is not there or says `max`. At once, as most
 * here: the kernel answers in microseconds, which is less than another thread takes to be asked.
 */
export function readNumberNow(folder: string, file: string): number {
  try {
    return Number.parseInt(readFileSync(join(folder, file), 'utf8'), 10) || 0
  } catch {
    return 0
  }
}

/** A number from a control file of `name number` lines. */
export function readFieldNow(folder: string, file: string, field: string): number {
  try {
    return findField(readFileSync(join(folder, file), 'utf8'), field)
  } catch {
    return 0 // The group is gone, or the kernel does not count this.
  }
}

const findField = (text: string, field: string) =>
  Number(new RegExp(`^${field} (\\d+)`, 'm').exec(text)?.[1] ?? 0)

export async function readPids(folder: string): Promise<number[]> {
  return parsePids(await readFile(join(folder, 'cgroup.procs'), 'utf8').catch(() => ''))
}

/** Of the group and of those below it, at once. */
export function readPidsNow(folder: string): number[] | undefined {
  try {
    const below = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory())
    const pids = parsePids(readFileSync(join(folder, 'cgroup.procs'), 'utf8'))
    return [...pids, ...below.flatMap(({ name }) => readPidsNow(join(folder, name)) ?? [])]
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return code === 'ENOENT' || code === 'ENODEV' ? [] : undefined // Gone, or not to be known.
  }
}

const parsePids = (text: string) => text.split('\n').filter(Boolean).map(Number)

/** A file that the kernel does not offer is ENOENT; were it to be created, that would be told as EACCES. */
export async function writeControl(folder: string, file: string, value: string | number): Promise<void> {
  await writeFile(join(folder, file), String(value), { flag: constants.O_WRONLY })
}

export function writeControlNow(folder: string, file: string, value: string | number): void {
  const fd = openSync(join(folder, file), constants.O_WRONLY)
  try {
    writeSync(fd, String(value))
  } finally {
    closeSync(fd)
  }
}

/** For a limit that a kernel may lack. */
export function writeWhereOffered(folder: string, file: string, value: string | number): void {
  try {
    writeControlNow(folder, file, value)
  } catch (error) {
    ignoreMissing(error as NodeJS.ErrnoException)
  }
}

/** For what a kernel may lack or does not support, and for a group that is gone already. */
export function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT' && error.code !== 'ENODEV' && error.code !== 'EOPNOTSUPP') throw error
}

export function makeGroup(folder: string): void {
  mkdirSync(folder, { recursive: true })
}

/** With those below it. A group can be removed a moment after its last process is gone. */
export async function removeGroup(folder: string): Promise<void> {
  for (const name of await listGroups(folder)) await removeGroup(join(folder, name))
  for (let tries = 1; ; tries++) {
    try {
      return await rmdir(folder)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'ENOENT') return
      if (code !== 'EBUSY' || tries === REMOVE_TRIES) throw error
    }
    await sleep(REMOVE_RETRY_MS)
  }
}

export async function listGroups(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name)
}

/** Kills until nothing is left but the one that is spared: while one is killed another may be forked. */
export async function killPids(folder: string, spared?: number): Promise<void> {
  for (let tries = 0; tries < REMOVE_TRIES; tries++) {
    if (signalPids(folder, spared) === 0) return
    await sleep(Math.min(2 ** tries, REMOVE_RETRY_MS)) // Most are gone within a millisecond or two.
  }
}

/** Kills what is there now, and tells how much that was. */
export function signalPids(folder: string, spared?: number): number {
  const pids = (readPidsNow(folder) ?? []).filter((pid) => pid !== spared)
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // Gone meanwhile.
    }
  }
  return pids.length
}
