import { readdir, readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'

const FIRST_UID = 400_000
let nextUid = FIRST_UID + (process.pid % 10_000) * 1000

/** A range of host users that no other test server uses. */
export function nextUidBase(count: number): number {
  const base = nextUid
  nextUid += count
  return base
}

export interface ProcessInfo {
  pid: number
  uid: number
  command: string
}

export async function listProcesses(): Promise<ProcessInfo[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(pids.map((pid) => describe(Number(pid)).catch(() => undefined)))
  return found.filter((process) => process !== undefined)
}

async function describe(pid: number): Promise<ProcessInfo> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  const command = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ').trim()
  return { pid, uid: Number(/^Uid:\s+(\d+)/m.exec(status)?.[1]), command }
}

export async function listSandboxProcesses(uidBase: number, count: number): Promise<ProcessInfo[]> {
  return (await listProcesses()).filter(({ uid }) => uid >= uidBase && uid < uidBase + count)
}

export async function countSandboxProcesses(uidBase: number, count: number): Promise<number> {
  return (await listSandboxProcesses(uidBase, count)).length
}

/** Asks until it holds; fails after the time given, with the last answer. */
export async function eventually<Value>(
  ask: () => Promise<Value> | Value,
  holds: (value: Value) => boolean,
  timeoutMs = 10_000,
): Promise<Value> {
  const deadline = Date.now() + timeoutMs
  for (;;) {
    const value = await ask()
    if (holds(value)) return value
    if (Date.now() > deadline) throw new Error(`still ${JSON.stringify(value)} after ${timeoutMs} ms`)
    await sleep(20)
  }
}
