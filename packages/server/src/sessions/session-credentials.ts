import type { Credential } from '@ash-ai/sandbox'
import { findUsableCredential } from '../credentials/credential-queries.ts'
import type { SessionDeps } from './session-deps.ts'
import { getSession, type SessionRow } from './session-queries.ts'

/**
 * The credential of that name, if the session was given it. Asked for each request and never kept: which ones a
 * session has, and the credential itself, can change while it lives.
 */
export async function findSessionCredential(
  deps: Pick<SessionDeps, 'db' | 'secrets' | 'log'>,
  { tenant_id, id }: Pick<SessionRow, 'tenant_id' | 'id'>,
  name: string,
): Promise<Credential | undefined> {
  try {
    const { credentials } = await getSession(deps.db, tenant_id, id)
    const isGiven = (JSON.parse(credentials) as string[]).includes(name)
    return isGiven ? await findUsableCredential(deps, tenant_id, name) : undefined
  } catch (error) {
    // The sandbox is told no more than that its request failed.
    deps.log.error({ err: error, sessionId: id, credential: name }, 'a credential cannot be used')
    throw error
  }
}
