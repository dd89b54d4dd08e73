import { runBareNode } from '../support/bare-bwrap.ts'
import { ms, row, summarize } from '../support/samples.ts'
import { timed } from '../support/timed.ts'
import { LifecycleLab } from './lifecycle-lab.ts'
import { table, yes } from './tables.ts'

const SESSIONS = 20
const ROUNDS = 3
const MOST_MS = 1500
const STEPS = ['listening', 'read', 'files', 'exec'] as const
type Times = Record<(typeof STEPS)[number], number>

/** With live sessions: until all of them are of use again. */
export function restart(): Promise<string[]> {
  return LifecycleLab.use({}, async (lab) => {
    const ids = await createNamed(lab)
    const [floorMs, stopMs]: [number[], number[]] = [[], []]
    const [stopped, killed]: [Times[], Times[]] = [[], []]
    for (let round = 0; round < ROUNDS; round++) {
      floorMs.push(await timed(() => Promise.all(ids.map(runBareNode))))
      stopMs.push(await timed(() => lab.stop('stop')))
      stopped.push(await timeStart(lab, ids))
      await lab.stop('kill')
      killed.push(await timeStart(lab, ids))
    }
    return [
      `${SESSIONS} live sessions. From the start of the server’s process until it listens, then until \`GET\` of every session, a file of`,
      `every session, and an \`exec\` in every session has answered, all at once each; medians. Target: ≤ ${MOST_MS} ms to the last.`,
      `Each \`exec\` starts a sandbox: ${SESSIONS} bare \`bwrap node -e 0\` at once take ${ms(summarize(floorMs).p50)} ms here. The stop by SIGTERM, which`,
      `saves every session, took ${ms(summarize(stopMs).p50)} ms.`,
      '',
      ...table(
        ['ms since the start', 'n', 'listening', '`GET`', 'files', '`exec`', 'target met'],
        line('after SIGTERM', stopped),
        line('after `kill -9`', killed),
      ),
    ]
  })
}

/** Each has a file that holds its id. */
async function createNamed(lab: LifecycleLab): Promise<string[]> {
  const ids: string[] = []
  while (ids.length < SESSIONS) {
    const id = await lab.create()
    await lab.exec(id, `echo ${id} > name`)
    ids.push(id)
  }
  return ids
}

function line(name: string, rounds: Times[]): string {
  const medians = STEPS.map((step) => summarize(rounds.map((times) => times[step])).p50)
  const isMet = (medians.at(-1) ?? Number.NaN) <= MOST_MS
  return row(name, rounds.length, ...medians.map(ms), yes(isMet))
}

async function timeStart(lab: LifecycleLab, ids: string[]): Promise<Times> {
  const started = performance.now()
  const since = () => performance.now() - started
  const onAll = async (work: (id: string) => Promise<unknown>) => {
    await Promise.all(ids.map(work))
    return since()
  }
  await lab.server.start()
  const listening = since()
  const read = await onAll((id) => lab.client.sessions.get(id))
  const files = await onAll(async (id) => {
    const text = await lab.client.files.readText(id, 'name')
    if (text.trim() !== id) throw new Error(`session ${id} has lost its file`)
  })
  const exec = await onAll((id) => lab.exec(id, `test "$(cat name)" = ${id}`))
  return { listening, read, files, exec }
}
