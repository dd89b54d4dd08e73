import { fork } from 'node:child_process'
import { once } from 'node:events'
import { JsonConnection } from '../support/json-connection.ts'
import { alternate } from './alternate.ts'
import { LifecycleLab } from './lifecycle-lab.ts'
import { timesFloor, timesLine, timesTable } from './tables.ts'

const ROUNDS = { rounds: 400, warmUp: 50 }
const MOST_TIMES_FLOOR = 2

/** Pause and resume of a session that keeps its sandbox, frozen. */
export async function warmResume(): Promise<string[]> {
  const bare = fork(new URL('../support/bare-fastify.ts', import.meta.url))
  try {
    const [port] = await once(bare, 'message')
    const floor = await JsonConnection.open(`http://127.0.0.1:${port}`)
    return await LifecycleLab.use({}, (lab) => measure(lab, floor)).finally(() => floor.close())
  } finally {
    bare.disconnect()
  }
}

async function measure(lab: LifecycleLab, floor: JsonConnection): Promise<string[]> {
  const id = await lab.create()
  const { bare, pause, resume } = await alternate(ROUNDS, {
    bare: async () => (await floor.post('/')).ms,
    pause: () => lab.timePost(`/api/sessions/${id}/pause`),
    resume: () => lab.timeResume(id, 'warm'),
  })
  return [
    '`POST …/resume` of a paused session whose sandbox is frozen: one change in the database, one entry in the log, and',
    'the sandbox runs. The floor is bare Fastify in a process of its own that answers a POST with as much JSON, over the',
    'same kind of kept connection. The pause before it saves the files, of which none has changed.',
    '',
    ...timesTable(
      timesLine('bare Fastify request (floor)', bare),
      timesLine('**warm resume**', resume, timesFloor(resume, bare, MOST_TIMES_FLOOR)),
      timesLine('pause: save, freeze', pause),
    ),
  ]
}
