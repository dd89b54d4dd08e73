export { BridgeClient } from './bridge-client.ts'
export { chooseLimits } from './limits/choose-limits.ts'
export type { LimitBackend, LimitGroup } from './limits/limit-backend.ts'
export { DEFAULT_LIMITS, type ResourceLimits } from './limits/resource-limits.ts'
export { type Sandbox, SandboxManager, type SandboxRequest } from './manager.ts'
export { Budget, type BudgetState } from './network/model/budget.ts'
export { loadPrices, type PriceTable } from './network/model/price-table.ts'
export type { ModelUpstream } from './network/model-proxy.ts'
export { parsePolicy } from './network/network-policy.ts'
export { SandboxPool } from './pool.ts'
export type { Owner, SandboxExit, SandboxProcess, SandboxProvider, SandboxSpec } from './provider.ts'
export { createProvider, PROVIDER_NAMES, type ProviderName } from './providers/create-provider.ts'
export {
  assertReachable,
  type Runtime,
  type RuntimeSource,
  removeOtherRuntimes,
  stageRuntime,
} from './runtime.ts'
export { removeSessionDirs, type SessionDirs, sessionDirs } from './session-dirs.ts'
