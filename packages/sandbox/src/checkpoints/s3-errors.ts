import { AshError } from '@ash-ai/shared'
import type { RemoteStoreConfig } from './remote-store.ts'

/** What went wrong, in words that help an operator. */
interface Fault {
  name: string
  status: number | undefined
}

/**
 * Without the original as its cause: the reply of a store repeats key ids and what was signed, and a cause ends
 * up in logs.
 */
export function storeUnavailable(action: string, error: unknown, config: RemoteStoreConfig): AshError {
  const fault = faultOf(error)
  const status = fault.status === undefined ? '' : `, HTTP ${fault.status}`
  return new AshError(
    'store_unavailable',
    `The snapshot store could not ${action} (${fault.name}${status}). ${adviceFor(fault, config)}`,
  )
}

export const isNotFound = (error: unknown): boolean => ['NoSuchKey', 'NotFound'].includes(faultOf(error).name)

/** No answer, or one that says later: nothing that an operator has set need be wrong. */
export function isUnreachable(error: unknown): boolean {
  const { name, status } = faultOf(error)
  const isBusy = status !== undefined && (status >= 500 || status === 429)
  return isBusy || (status === undefined && !CREDENTIALS_MISSING.includes(name))
}

const CREDENTIALS_MISSING = ['CredentialsProviderError', 'TokenProviderError', 'InvalidIdentityToken']
const REFUSED = [401, 403]

function adviceFor({ name, status }: Fault, { bucket, endpoint }: RemoteStoreConfig): string {
  if (name === 'NoSuchBucket')
    return `Create the bucket "${bucket}", or name another one in ASH_SNAPSHOT_URL.`
  if (name === 'PermanentRedirect' || name === 'AuthorizationHeaderMalformed')
    return `The bucket "${bucket}" is in another region: set ASH_S3_REGION.`
  if (CREDENTIALS_MISSING.includes(name))
    return 'No credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role.'
  if (status !== undefined && REFUSED.includes(status))
    return `Check the credentials, and that they may get, put, list and delete objects in "${bucket}".`
  if (status === undefined)
    return `Check that ${endpoint === undefined ? 'Amazon S3' : new URL(endpoint).host} can be reached from here (ASH_S3_ENDPOINT, ASH_S3_REGION).`
  return 'Try again; if it stays so, look into the log of the store.'
}

/** Names come from the store: kept to what a name looks like. */
function faultOf(error: unknown): Fault {
  const { name, code, $metadata } = (error ?? {}) as {
    name?: unknown
    code?: unknown
    $metadata?: { httpStatusCode?: unknown }
  }
  const status = $metadata?.httpStatusCode
  // Errors of the network are plain: their code says more than their name.
  const told = typeof code === 'string' && name === 'Error' ? code : name
  return {
    name: typeof told === 'string' && /^[\w.]{1,64}$/.test(told) ? told : 'unknown error',
    status: typeof status === 'number' ? status : undefined,
  }
}
