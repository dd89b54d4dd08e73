export { listDescriptors, listProcesses, listTree, type ProcessInfo } from './processes.ts'
export { describeSandboxProvider, type ProviderFixture } from './provider-suite.ts'
export { syscallNumber } from './syscall-number.ts'
