import { runBareNode } from '../support/bare-bwrap.ts'
import { ms, row, summarize } from '../support/samples.ts'
import { timed } from '../support/timed.ts'
import { LifecycleLab } from './lifecycle-lab.ts'
import { table, yes } from './tables.ts'

const CREATES = 50
const SPARES = 10
const ROUNDS = 3
const ENV = { ASH_MAX_SANDBOXES: String(CREATES + SPARES) }

/** Many creates at the same time, with spares for some of them. */
export function burst(): Promise<string[]> {
  return LifecycleLab.use({ env: ENV, warm: SPARES }, async (lab) => {
    const [floor, all, fastest, last]: [number[], number[], number[], number[]] = [[], [], [], []]
    for (let round = 0; round < ROUNDS; round++) {
      await lab.spares(SPARES)
      floor.push(...(await atOnce(() => timed(runBareNode))))
      const times = (await atOnce(() => timeAndKeep(lab))).filter((time) => time !== undefined)
      times.sort((a, b) => a - b)
      all.push(...times)
      fastest.push(...times.slice(0, SPARES))
      last.push(...times.slice(-1))
      await endAll(lab)
    }
    return [
      `${CREATES} sessions asked for at the same moment, ${SPARES} spares, ASH_MAX_SANDBOXES=${CREATES + SPARES}; ${ROUNDS} times. The floor is as many`,
      'bare `bwrap node -e 0` at once.',
      '',
      ...table(
        ['ms', 'n', 'p50', 'p95', 'p99', 'all succeed'],
        line('bare `bwrap node -e 0`, all at once (floor)', floor),
        line('**create, all**', all, yes(all.length === CREATES * ROUNDS)),
        line(`create, the ${SPARES} fastest of each`, fastest),
        line('create, the last of each', last),
      ),
    ]
  })
}

const atOnce = <Result>(work: () => Promise<Result>) => Promise.all(Array.from({ length: CREATES }, work))

/** Undefined where it was refused. */
async function timeAndKeep(lab: LifecycleLab): Promise<number | undefined> {
  try {
    return await timed(() => lab.create())
  } catch (error) {
    console.error(error)
    return undefined
  }
}

async function endAll({ client }: LifecycleLab): Promise<void> {
  const { sessions } = await client.sessions.list({ status: 'active', limit: CREATES })
  await Promise.all(sessions.map(({ id }) => client.sessions.end(id)))
}

function line(name: string, samples: number[], last = ''): string {
  const { n, p50, p95, p99 } = summarize(samples)
  return row(name, n, ms(p50), ms(p95), ms(p99), last)
}
