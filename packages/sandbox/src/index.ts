export { collectArtifacts, scanFiles } from './artifacts/artifacts.ts'
export type { FileScan } from './artifacts/walk-files.ts'
export { BridgeClient } from './bridge-client.ts'
export {
  CheckpointStore,
  type SavedCheckpoint,
} from './checkpoints/checkpoint-store.ts'
export { openRemoteStore } from './checkpoints/remote-open.ts'
export type { RemoteStore } from './checkpoints/remote-store.ts'
export { fetchCheckpoint, uploadCheckpoint } from './checkpoints/remote-transfer.ts'
export { sweepLocal, sweepRemote } from './checkpoints/sweep.ts'
export type { KnownCheckpoint } from './checkpoints/sweep-marks.ts'
export { receiveTar, saveTar } from './checkpoints/tar-in.ts'
export { workspaceTar } from './checkpoints/tar-out.ts'
export { armFaultPoint, faultPoint } from './fault-point.ts'
export { BridgeInterpreter } from './interpreters/bridge-interpreter.ts'
export type { DirectInterpreter } from './interpreters/direct-interpreter.ts'
export type { Interpreter, TakeOutput } from './interpreters/interpreter.ts'
export { asOutOfMemory } from './interpreters/out-of-memory.ts'
export { type InterpreterRequest, startInterpreter } from './interpreters/start-interpreter.ts'
export { keepLayer, type Layer, type LayerSize, layerIn, roomMb } from './layer.ts'
export { findCgroupMounts } from './limits/cgroup-mounts.ts'
export { chooseLimits } from './limits/choose-limits.ts'
export { chooseDisk } from './limits/disk/choose-disk.ts'
export { type DiskBackend, INODES_PER_MB } from './limits/disk/disk-backend.ts'
export { canMountImages, LoopDisk } from './limits/disk/loop-disk.ts'
export { PolledDisk } from './limits/disk/polled-disk.ts'
export type { LimitBackend, LimitGroup } from './limits/limit-backend.ts'
export { DEFAULT_LIMITS, type ResourceLimits } from './limits/resource-limits.ts'
export { createRlimitBackend } from './limits/rlimit.ts'
export { type PreparedSandbox, type Sandbox, SandboxManager, type SandboxRequest } from './manager.ts'
export {
  type Credential,
  formatCredentialHost,
  parseCredentialHost,
} from './network/credential.ts'
export { Budget, type BudgetState } from './network/model/budget.ts'
export { loadPrices, type PriceTable } from './network/model/price-table.ts'
export type { ModelUpstream } from './network/model-proxy.ts'
export { decide, type NetworkPolicy, parsePolicy } from './network/network-policy.ts'
export { packageEnv } from './package-env.ts'
export { type PoolUse, SandboxPool } from './pool.ts'
export type {
  BridgeSpec,
  Owner,
  SandboxExit,
  SandboxProcess,
  SandboxProvider,
  SandboxSpec,
} from './provider.ts'
export { SANDBOX_PATHS } from './providers/bwrap-paths.ts'
export { createProvider, PROVIDER_NAMES, type ProviderName } from './providers/create-provider.ts'
export { expectOutput } from './providers/output-pipes.ts'
export {
  assertReachable,
  type Runtime,
  type RuntimeSource,
  removeOtherRuntimes,
  stageRuntime,
} from './runtime.ts'
export type { SandboxPaths } from './sandbox-env.ts'
export type { SandboxChange, SandboxRow, SandboxStore } from './sandbox-store.ts'
export { ARCHITECTURES } from './seccomp/compile.ts'
export {
  exists,
  isSetUp,
  markSetUp,
  removeSessionDirs,
  type SessionDirs,
  sessionDirs,
} from './session-dirs.ts'
export { SandboxTerminal } from './terminals/sandbox-terminal.ts'
