import type { Duplex, Readable } from 'node:stream'
import type { Language, RunUsage } from '@ash-ai/shared'
import type { Freezer } from './limits/cgroup-freezer.ts'
import type { Enclosure } from './limits/enclosure.ts'
import type { LimitHits, ResourceUsage } from './limits/limit-backend.ts'
import type { EnforcementReport, ResourceLimits } from './limits/resource-limits.ts'
import type { Runtime } from './runtime.ts'

/** What any way of running a sandbox promises. `testing/provider-suite.ts` holds each one to it. */
export interface SandboxProvider {
  readonly name: string
  /** What stands between the work inside and the host. */
  readonly isolation: 'bwrap' | 'none'
  /** What holds the limits here, and how well. */
  readonly limits: { backend: string; enforcement: EnforcementReport }
  /** Throws `provider_unavailable`, saying what is missing and how to get it, where it cannot isolate here. */
  check(): Promise<void>
  /** A start is about to come: what can be waited for ahead of it is begun. */
  expectStart(): void
  /** Starts a bridge inside. Throws `sandbox_start_failed` and leaves nothing behind where it cannot. */
  start(spec: BridgeSpec): Promise<SandboxProcess>
  /**
   * Starts an interpreter inside the same boundary, without a bridge. Throws `interpreter_missing` where there is
   * none for the language, otherwise as `start`.
   */
  startInterpreter(spec: SandboxSpec, language: Language): Promise<InterpreterProcess>
}

export interface SandboxSpec {
  id: string
  runtime: Runtime
  /** Pristine agent folder: read-only inside. */
  agentDir?: string | undefined
  /** With the home, the only host folders that can be written from inside. */
  workspaceDir: string
  homeDir: string
  /** Host user that owns workspace and home; undefined where the server cannot switch users. */
  owner: Owner | undefined
  limits: ResourceLimits
  env: Record<string, string>
}

/** A sandbox without these has no way out at all. */
export interface BridgeSpec extends SandboxSpec {
  /** Socket of this sandbox's model proxy. */
  modelSocket: string
  /** Socket of this sandbox's egress proxy. */
  egressSocket: string
  /** Where connections from outside to ports inside come out; without it there are none. */
  tunnelSocket?: string | undefined
}

export interface Owner {
  uid: number
  gid: number
}

/** A live tree of processes under its limits. */
export interface ProcessTree extends Freezer {
  pid: number
  /** Until now, or until its end. */
  usage(): Promise<ResourceUsage>
  hits(): LimitHits
  /** Host pids of everything inside; undefined where no control group holds it. */
  pids(): number[] | undefined
  /** It is in all of its groups; only then parts of it can be held apart. */
  settled: Promise<void>
  /** Holds one of them, by its host pid, and all that it will start together; undefined where nothing can. */
  enclose(name: string, hostPid: number): Enclosure | undefined
  /** Kills everything inside, also what is frozen; resolves when it is gone. Safe to call again. */
  kill(): Promise<void>
}

/** A live sandbox. The bridge speaks the protocol over `stream`, which nothing inside can reach by a name. */
export interface SandboxProcess extends ProcessTree {
  stream: Duplex
  exited: Promise<SandboxExit>
}

/** A live interpreter in a sandbox of its own. Its requests and replies go by `channel`. */
export interface InterpreterProcess extends ProcessTree {
  stdout: Readable
  stderr: Readable
  channel: Duplex
  /** At once when the interpreter has ended; what it started is killed from then on. */
  ended: Promise<ProcessExit>
  /** All of it is gone. */
  exited: Promise<ProcessExit>
  /** Whether the program ran at all; known when it has ended. */
  hasRun(): boolean
  /** What all of it has used until now, or until its end. */
  measure(): Promise<RunUsage>
  /** As from a keyboard: it may be ignored. */
  interrupt(): void
}

export interface ProcessExit {
  code: number | null
  signal: NodeJS.Signals | null
  /** As it was at the end. */
  usage: ResourceUsage
}

export interface SandboxExit extends ProcessExit {
  /** The last few kilobytes of what the bridge wrote to stderr. */
  stderr: string
}
