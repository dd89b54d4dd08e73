import { timed } from '../support/timed.ts'
import { alternate } from './alternate.ts'
import { LifecycleLab } from './lifecycle-lab.ts'
import { timesLine, timesTable, within } from './tables.ts'

const SPARES = 2
const ROUNDS = { rounds: 150, warmUp: 10 }
const COLD_ROUNDS = { rounds: 30, warmUp: 3 }
const GOAL = { p50Ms: 5, p99Ms: 20 }

/** A session from a spare, one at a time, against one for which everything is started. */
export async function warmCreate(): Promise<string[]> {
  const created: string[] = []
  const runsOf = (lab: LifecycleLab) => ({
    create: async () => {
      const { ms, id } = await lab.timeCreate()
      created.push(id)
      return ms
    },
    use: () => timed(() => lab.exec(created.at(-1) ?? '', 'true')),
    end: () => timed(() => lab.client.sessions.end(created.pop() ?? '')),
  })
  const warm = await LifecycleLab.use({ warm: SPARES }, async (lab) => {
    const ready = () => timed(() => lab.spares(SPARES))
    const times = await alternate(ROUNDS, { ready, ...runsOf(lab) })
    const missed = ROUNDS.rounds + ROUNDS.warmUp - (await lab.warmCreates())
    if (missed > 0) throw new Error(`${missed} sessions did not get a spare`)
    return times
  })
  const cold = await LifecycleLab.use({}, (lab) => alternate(COLD_ROUNDS, runsOf(lab)))
  return [
    `\`POST /api/sessions\` until the session is active, one at a time, with ${SPARES} spares of the agent ready each time; they are`,
    'refilled after the reply. Below, the same without spares.',
    '',
    ...timesTable(
      timesLine('**create, from a spare**', warm.create, within(GOAL.p50Ms, GOAL.p99Ms)),
      timesLine('its first `exec true`', warm.use),
      timesLine('create, cold', cold.create),
      timesLine('its first `exec true`', cold.use),
    ),
  ]
}
