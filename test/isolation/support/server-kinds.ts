import type { Owner } from '@ash-ai/sandbox'
import { nextOwner } from './provider-fixture.ts'

interface ServerKind {
  name: string
  /** Who the server runs as; undefined is whoever runs this test. */
  user: () => Owner | undefined
  /** Who a sandbox runs as on the host. */
  owner: () => Owner | undefined
}

export const isRoot = process.getuid?.() === 0

const ROOT: ServerKind = {
  name: 'root, with a user for each sandbox',
  user: () => undefined,
  owner: nextOwner,
}
const UNPRIVILEGED: ServerKind = { name: 'an unprivileged user', user: nextOwner, owner: () => undefined }

/** Every way a server can be run here. */
export const SERVER_KINDS = isRoot ? [ROOT, UNPRIVILEGED] : [UNPRIVILEGED]
