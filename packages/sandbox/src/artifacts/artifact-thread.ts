/** A thread in which workspaces are searched for what a run changed, with calls that wait. One task at a time. */
import { parentPort } from 'node:worker_threads'
import { codeOf } from '../checkpoints/checkpoint-fault.ts'
import type { ThreadReply } from '../checkpoints/thread-pool.ts'
import { type CollectTask, copyChanges } from './copy-changes.ts'
import { walkFiles } from './walk-files.ts'

export type ArtifactTask = { kind: 'scan'; dir: string } | ({ kind: 'collect' } & CollectTask)

parentPort?.on('message', (task: ArtifactTask) => {
  parentPort?.postMessage(answer(task))
})

function answer(task: ArtifactTask): ThreadReply<unknown> {
  try {
    return { result: task.kind === 'scan' ? walkFiles(task.dir) : copyChanges(task) }
  } catch (error) {
    const isFull = ['ENOSPC', 'EDQUOT'].includes(codeOf(error))
    const message = isFull
      ? 'There is no room for the files of the run'
      : 'The files of the run cannot be read'
    const detail = error instanceof Error ? error.message : String(error)
    return { fault: { code: isFull ? 'disk_full' : 'internal_error', message, detail } }
  }
}
