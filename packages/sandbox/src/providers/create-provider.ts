import type { DiskBackend } from '../limits/disk/disk-backend.ts'
import type { LimitBackend } from '../limits/limit-backend.ts'
import { createRlimitBackend } from '../limits/rlimit.ts'
import type { SandboxProvider } from '../provider.ts'
import { createBwrapProvider } from './bwrap.ts'
import { createProcessProvider } from './process.ts'

export const PROVIDER_NAMES = ['bwrap', 'process'] as const
export type ProviderName = (typeof PROVIDER_NAMES)[number]

/** The only switch over provider names. There is no automatic choice: less isolation is never a fallback. */
export function createProvider(
  name: ProviderName,
  limits: LimitBackend = createRlimitBackend(false),
  diskMb: DiskBackend['enforcement'] = 'polled',
): SandboxProvider {
  return name === 'bwrap' ? createBwrapProvider(limits, diskMb) : createProcessProvider(diskMb)
}
