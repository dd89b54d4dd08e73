/** Uploads what a host has to upload, then ends, unless it kills itself on the way. Arguments: UploadJob as JSON. */
import { armFaultPoint, CheckpointStore, openRemoteStore } from '@ash-ai/sandbox'
import { openDb } from '../../db/open-db.ts'
import { createLogger } from '../../http/logger.ts'
import { Uploads } from '../uploads.ts'

export interface UploadJob {
  dataDir: string
  storeDir: string
  remote: Parameters<typeof openRemoteStore>[0]
  faultPoint?: string
}

const { dataDir, storeDir, remote: config, faultPoint } = JSON.parse(process.argv[2] ?? '') as UploadJob
const { db, close } = await openDb({ dataDir, sqliteSync: 'normal' })
const store = new CheckpointStore({ dir: storeDir, sync: false })
const remote = await openRemoteStore(config, 'database-1')
const uploads = new Uploads({ db, hostId: 'host-a', store, remote, log: createLogger('silent') })
armFaultPoint(faultPoint)
uploads.start()
await uploads.settled()
await uploads.close()
remote.close()
await store.close()
await close()
