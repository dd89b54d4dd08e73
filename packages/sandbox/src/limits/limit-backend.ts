import type { Freezer } from './cgroup-freezer.ts'
import type { Enclosure } from './enclosure.ts'
import type { ProcessEnforcement, ResourceLimits } from './resource-limits.ts'

/** One way of limiting a tree of processes. */
export interface LimitBackend {
  readonly name: 'cgroup-v2' | 'cgroup-v1' | 'rlimit'
  readonly enforcement: ProcessEnforcement
  create(id: string, limits: ResourceLimits): Promise<LimitGroup>
  /** Removes groups that a killed server left behind, with whatever still runs in them. */
  removeLeftovers(): Promise<void>
  /** When no group is left. */
  close(): Promise<void>
}

/** The limits of one sandbox. */
export interface LimitGroup extends Freezer {
  /** A way in that is quicker than `add`; undefined where there is none. */
  readonly entrance: Entrance | undefined
  /** Puts a process, and all it will start, under the limits. Called before the process runs anything. */
  add(pid: number): Promise<void>
  usage(): Promise<ResourceUsage>
  /** Read at once: asked of every sandbox every second, it must cost next to nothing. */
  hits(): LimitHits
  /**
   * Kills everything in the group, also what was stopped or ignores signals; not the one that entered it, which
   * ends by itself then and has to reap the first process inside: nobody else may.
   */
  kill(entered?: number): Promise<void>
  /** Host pids of what is inside, read at once. Undefined where nothing holds it together. */
  pids(): number[] | undefined
  /** Puts one of its processes, and all that will start, into a group of its own below. Undefined where it cannot. */
  enclose(name: string, hostPid: number): Enclosure | undefined
  /** After the last process is gone. */
  remove(): Promise<void>
}

/** How often the kernel killed for memory, and refused a process, since the group was made. */
export interface LimitHits {
  oomKills: number
  processesRefused: number
}

export interface ResourceUsage extends LimitHits {
  memoryBytes: number
  peakMemoryBytes: number
  cpuMs: number
  processes: number
}

/** By which a process puts itself under the limits, which costs the kernel next to nothing. */
export interface Entrance {
  /** It writes 0 to each of these. */
  files: readonly string[]
  /** Then what it has started is taken into the group that limits nothing; it may run meanwhile. */
  settle(entered: number): Promise<void>
}
