import { setTimeout as sleep } from 'node:timers/promises'
import { timed } from '../support/timed.ts'
import { alternate } from './alternate.ts'
import { LifecycleLab, SETTLE_MS } from './lifecycle-lab.ts'
import { timesLine, timesTable, within } from './tables.ts'

const ROUNDS = { rounds: 20, warmUp: 2 }
const FIRST_USES = { rounds: 5 }
const P50_MS = 50

/** A fork of a session with many files, and what its first use costs. */
export function fork(): Promise<string[]> {
  return LifecycleLab.use({}, async (lab) => {
    const id = await lab.create()
    await lab.fill(id)
    await lab.post(`/api/sessions/${id}/checkpoints`)
    let forked = ''
    const makeFork = async () => {
      const { ms, body } = await lab.post(`/api/sessions/${id}/fork`, {})
      forked = (body as { session: { id: string } }).session.id
      return ms
    }
    const end = () => timed(() => lab.client.sessions.end(forked))
    const { changed, unchanged } = await alternate(ROUNDS, {
      rest: () => timed(() => sleep(SETTLE_MS)),
      change: () => timed(() => lab.change(id)),
      changed: makeFork,
      end,
      unchanged: makeFork,
      endAgain: end,
    })
    const { firstUse } = await alternate(FIRST_USES, {
      makeFork,
      firstUse: () => timed(() => lab.exec(forked, 'test -e files/f0999')),
      end,
    })
    return [
      '`POST …/fork` of a live session with 1,000 files of 100 KB until the new session is answered, which takes a checkpoint',
      'of the session as it is now; more than a second lies between two changes. Nothing is copied: the files of the fork appear',
      'with its first use, here an `exec`.',
      '',
      ...timesTable(
        timesLine('**fork, 10 of 1,000 files changed since the last checkpoint**', changed, within(P50_MS)),
        timesLine('fork, nothing changed, at once after that', unchanged, within(P50_MS)),
        timesLine('its first use: 100 MB restored, sandbox started', firstUse),
      ),
    ]
  })
}
