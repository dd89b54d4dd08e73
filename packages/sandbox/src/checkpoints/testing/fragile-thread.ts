/** A thread that does as it is told: answers, fails, ends, or never answers. */
import { parentPort } from 'node:worker_threads'
import type { ThreadReply } from '../thread-pool.ts'

parentPort?.on('message', (task: string) => {
  if (task === 'exit') process.exit(3)
  if (task === 'throw') throw new Error('out of its mind')
  if (task !== 'hang') parentPort?.postMessage(answer(task))
})

const answer = (task: string): ThreadReply<string> =>
  task === 'fault' ? { fault: { code: 'disk_full', message: 'no room' } } : { result: `${task} done` }
