/**
 * Blobs and manifests beside this host, by tenant and SHA-256. Nothing is ever replaced by something else: the
 * same hash is the same bytes. Whoever reads checks the hash. Everything may throw store_unavailable.
 */
export interface RemoteStore {
  /** Whether the last request was answered at all. */
  readonly isReachable: boolean
  /** Also makes an object that is there young again. */
  put(tenantId: string, hash: string, bytes: Uint8Array): Promise<void>
  get(tenantId: string, hash: string): Promise<Buffer | undefined>
  has(tenantId: string, hash: string): Promise<{ modifiedMs: number } | undefined>
  /** In no order that matters. What another program left among the objects is not listed. */
  list(tenantId: string): AsyncIterable<RemoteObject>
  /** Those that do not exist are deleted, too. */
  delete(tenantId: string, hashes: readonly string[]): Promise<void>
  /** Says to everybody that unused objects of the tenant are being deleted, until it is ended or too old. */
  beginSweep(tenantId: string): Promise<RemoteSweep>
  /** Whether somebody is deleting, on any host. */
  isSwept(tenantId: string): Promise<boolean>
  close(): void
}

export interface RemoteObject {
  hash: string
  bytes: number
  modifiedMs: number
}

export interface RemoteSweep {
  /** Nothing may be deleted from then on. */
  endsAtMs: number
  end(): Promise<void>
}

export interface RemoteStoreConfig {
  readonly bucket: string
  /** Ends with a slash, or is empty. */
  readonly prefix: string
  readonly endpoint?: string
  readonly region?: string
  readonly pathStyle: boolean
}

/** A sweep leaves alone what is younger. */
export const REMOTE_GRACE_MS = 24 * 60 * 60_000
/** A sweep takes no longer; what is left is for the next one. Uploads wait that long for one that died. */
export const MAX_REMOTE_SWEEP_MS = 15 * 60_000
