import type { Duplex } from 'node:stream'
import type { Freezer } from './limits/cgroup-freezer.ts'
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
  /** Starts a bridge inside. Throws `sandbox_start_failed` and leaves nothing behind where it cannot. */
  start(spec: SandboxSpec): Promise<SandboxProcess>
}

export interface SandboxSpec {
  id: string
  runtime: Runtime
  /** Pristine agent folder: read-only inside. */
  agentDir: string
  /** With the home, the only host folders that can be written from inside. */
  workspaceDir: string
  homeDir: string
  /** Socket of this sandbox's model proxy. */
  modelSocket: string
  /** Socket of this sandbox's egress proxy. */
  egressSocket: string
  /** Host user that owns workspace and home; undefined where the server cannot switch users. */
  owner: Owner | undefined
  limits: ResourceLimits
  env: Record<string, string>
}

export interface Owner {
  uid: number
  gid: number
}

/** A live sandbox. The bridge speaks the protocol over `stream`, which nothing inside can reach by a name. */
export interface SandboxProcess extends Freezer {
  pid: number
  stream: Duplex
  exited: Promise<SandboxExit>
  usage(): Promise<ResourceUsage>
  hits(): LimitHits
  /** Host pids of everything inside; undefined where no control group holds it. */
  pids(): number[] | undefined
  /** Kills everything inside, also what is frozen; resolves when it is gone. Safe to call again. */
  kill(): Promise<void>
}

export interface SandboxExit {
  code: number | null
  signal: NodeJS.Signals | null
  /** The last few kilobytes of what the bridge wrote to stderr. */
  stderr: string
  /** As it was at the end. */
  usage: ResourceUsage
}
