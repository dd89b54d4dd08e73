import { join } from 'node:path'

/** Host uids for the sandboxes of a server. */
export const SANDBOX_UIDS = { base: 200_000, count: 65_536 }
export const MAX_UID = 2 ** 32 - 2

export interface HostFacts {
  isRoot: boolean
  homeDir: string
}

/** Where data lies unless the environment says otherwise. */
export function defaultDataDir(xdgDataHome: string | undefined, { isRoot, homeDir }: HostFacts): string {
  return isRoot ? '/var/lib/ash' : join(xdgDataHome ?? join(homeDir, '.local', 'share'), 'ash')
}
