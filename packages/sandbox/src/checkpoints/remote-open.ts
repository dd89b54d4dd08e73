import type { RemoteStore, RemoteStoreConfig } from './remote-store.ts'

/**
 * The bucket, once it has been shown to belong to this database. Refuses one that another database uses: each
 * would take the other's checkpoints for garbage. One that does not answer is asked again with its first use.
 */
export async function openRemoteStore(config: RemoteStoreConfig, storeId: string): Promise<RemoteStore> {
  // Here, since only those who use it should wait for the client of S3 to load.
  const { openS3Store } = await import('./s3-store.ts')
  return openS3Store(config, storeId)
}
