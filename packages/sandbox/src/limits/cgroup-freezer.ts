import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ignoreMissing } from './cgroup-files.ts'

/** What is not stopped by then, such as a process that waits for a device, is let go again. */
const FREEZE_TIMEOUT_MS = 2_000
const UNIFIED_FILE = 'cgroup.freeze'
const FIRST_WAIT_MS = 1
const LONGEST_WAIT_MS = 16

/** Stops everything in a control group, and lets it go on. */
export interface Freezer {
  /** Resolves with true when all of it stands still. With false it runs: this kernel, or what is inside, does not stop. */
  freeze(): Promise<boolean>
  /** At once: it stands before the first message to a session that waits. */
  thaw(): void
}

/** Where a group is frozen, and where the kernel tells that it is. */
interface FreezeControl {
  folder: string
  file: string
  frozen: string
  thawed: string
  stateFile: string
  isFrozen: RegExp
}

/** Kernels before 5.2 cannot freeze a group of version 2. */
export const canFreeze = (folder: string) => existsSync(join(folder, UNIFIED_FILE))

/** By the groups of version 2. What is frozen there can be killed. */
export function unifiedFreezer(folder: string): Freezer {
  return freezerOf({
    folder,
    file: UNIFIED_FILE,
    frozen: '1',
    thawed: '0',
    stateFile: 'cgroup.events',
    isFrozen: /^frozen 1$/m,
  })
}

/** By the controller of version 1. What is frozen there dies only when it is thawed. */
export function v1Freezer(folder: string): Freezer {
  return freezerOf({
    folder,
    file: 'freezer.state',
    frozen: 'FROZEN',
    thawed: 'THAWED',
    stateFile: 'freezer.state',
    isFrozen: /^FROZEN$/m,
  })
}

function freezerOf({ folder, file, frozen, thawed, stateFile, isFrozen }: FreezeControl): Freezer {
  let isWanted = false
  const write = (value: string) => writeFileSync(join(folder, file), value, { flag: 'r+' })
  const thaw = () => {
    isWanted = false
    try {
      write(thawed)
    } catch (error) {
      ignoreMissing(error as NodeJS.ErrnoException)
    }
  }
  const becomesFrozen = async () => {
    const untilMs = performance.now() + FREEZE_TIMEOUT_MS
    for (let waitMs = FIRST_WAIT_MS; isWanted; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      if (isFrozen.test(readFileSync(join(folder, stateFile), 'utf8'))) return true
      if (performance.now() >= untilMs) return false
      await sleep(waitMs)
    }
    return false // Thawed meanwhile.
  }
  return {
    thaw,
    async freeze() {
      isWanted = true
      try {
        write(frozen)
        if (await becomesFrozen()) return true
      } catch (error) {
        ignoreMissing(error as NodeJS.ErrnoException)
      }
      thaw()
      return false
    },
  }
}
