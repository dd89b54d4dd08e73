/** Saves or restores, and is killed on the way. Argument: JSON of the point, the store and the request. */
import { armFaultPoint } from '../../fault-point.ts'
import { CheckpointStore } from '../checkpoint-store.ts'

const { faultPoint, dir, save, restore } = JSON.parse(process.argv[2] ?? '')
armFaultPoint(faultPoint)
const store = new CheckpointStore({ dir, sync: false, threads: 1, faultPoint })
if (save) await store.save(save, async () => {})
if (restore) await store.restore(restore)
await store.close()
