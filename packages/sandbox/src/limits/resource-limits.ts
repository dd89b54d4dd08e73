/** What one sandbox may use. */
export interface ResourceLimits {
  memoryMb: number
  /** Cores' worth of time; 0.5 is half a core. */
  cpus: number
  /** Processes and threads. */
  processes: number
  openFiles: number
  /** The largest single file. */
  fileSizeMb: number
  /** Workspace and home together. */
  diskMb: number
  /** What the bridge may send; more comes slower. */
  outputMbPerSecond: number
}

/** Enough for an agent with its tools. Threads count as processes, and `claude` and the bridge have many. */
export const DEFAULT_LIMITS: ResourceLimits = {
  memoryMb: 2048,
  cpus: 2,
  processes: 512,
  openFiles: 4096,
  fileSizeMb: 1024,
  diskMb: 2048,
  outputMbPerSecond: 32,
}

/** How well a limit holds here: the kernel refuses, it is watched and acted upon, or nothing does. */
type Enforcement = 'hard' | 'polled' | 'none'
export type EnforcementReport = Record<keyof ResourceLimits, Enforcement>

/** The disk is held by a back end of its own, output by the server's end of the bridge. */
export type ProcessEnforcement = Omit<EnforcementReport, 'diskMb' | 'outputMbPerSecond'>

/** What control groups and rlimits together give. */
export const ALL_ENFORCED: ProcessEnforcement = {
  memoryMb: 'hard',
  cpus: 'hard',
  processes: 'hard',
  openFiles: 'hard',
  fileSizeMb: 'hard',
}

export const NOTHING_ENFORCED: ProcessEnforcement = {
  memoryMb: 'none',
  cpus: 'none',
  processes: 'none',
  openFiles: 'none',
  fileSizeMb: 'none',
}
