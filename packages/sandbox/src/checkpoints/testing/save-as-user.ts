/** Saves folders as another user than root. Argument: JSON of the user, the store and the task. */
import { saveFolders } from '../save-folders.ts'

const { uid, store, task } = JSON.parse(process.argv[2] ?? '')
process.setgroups?.([])
process.setegid?.(uid)
process.seteuid?.(uid)
process.stdout.write(saveFolders(store, task).manifest)
