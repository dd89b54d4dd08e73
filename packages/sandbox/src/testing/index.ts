export { unmountBelow } from '../limits/disk/ext4-image.ts'
export { listDescriptors, listProcesses, listTree, type ProcessInfo } from './processes.ts'
export { describeSandboxProvider, type ProviderFixture } from './provider-suite.ts'
export { syscallNumber } from './syscall-number.ts'
