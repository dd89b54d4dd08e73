import type { Owner } from '@ash-ai/sandbox'
import { canDelegateGroups } from './delegated-groups.ts'
import { nextOwner } from './provider-fixture.ts'

export interface ServerKind {
  name: string
  /** Who the server runs as; undefined is whoever runs this test. */
  user: () => Owner | undefined
  /** Who a sandbox runs as on the host. */
  owner: () => Owner | undefined
  /** Whether it may make control groups though it is not root, as under systemd with `Delegate=yes`. */
  hasDelegatedGroups?: true
}

export const isRoot = process.getuid?.() === 0

const ROOT: ServerKind = {
  name: 'root, with a user for each sandbox',
  user: () => undefined,
  owner: nextOwner,
}
export const UNPRIVILEGED: ServerKind = {
  name: 'an unprivileged user',
  user: nextOwner,
  owner: () => undefined,
}
const DELEGATED: ServerKind = {
  ...UNPRIVILEGED,
  name: 'an unprivileged user who was given control groups',
  hasDelegatedGroups: true,
}

/** Every way a server can be run here. */
export const SERVER_KINDS = isRoot ? [ROOT, UNPRIVILEGED] : [UNPRIVILEGED]

/** Those that hold sandboxes by control groups. */
export const KINDS_WITH_GROUPS = [...(isRoot ? [ROOT] : []), ...(canDelegateGroups ? [DELEGATED] : [])]
