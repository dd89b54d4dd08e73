import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SessionEvent } from '@ash-ai/sdk'
import { bundleInstantBridge } from '../support/instant-bridge.ts'
import { timed } from '../support/timed.ts'
import { alternate } from './alternate.ts'
import { LifecycleLab, SETTLE_MS } from './lifecycle-lab.ts'
import { timesLine, timesTable, within } from './tables.ts'

const ROUNDS = { rounds: 20, warmUp: 2 }
const AT_ONCE = { rounds: 30, warmUp: 5 }
const P50_MS = 30
const TURNS = 100

/** What it costs to save a session: asked for, and after each turn. */
export async function checkpoint(): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-bench-'))
  try {
    const env = { ASH_BRIDGE_ENTRY: await bundleInstantBridge(folder) }
    return await LifecycleLab.use({ env }, measure)
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function measure(lab: LifecycleLab): Promise<string[]> {
  const [empty, full] = [await lab.create(), await lab.create()]
  await lab.fill(full)
  const save = (id: string) => () => lab.timePost(`/api/sessions/${id}/checkpoints`)
  const first = await save(full)()
  await save(empty)()
  const change = () => timed(() => lab.change(full))
  const { changed, small } = await alternate(ROUNDS, {
    rest: () => timed(() => sleep(SETTLE_MS)),
    change,
    changed: save(full),
    small: save(empty),
  })
  const { atOnce, unchanged } = await alternate(AT_ONCE, {
    change,
    atOnce: save(full),
    unchanged: save(full),
  })
  const [turns, fullTurns] = [await timeTurns(lab, empty), await timeTurns(lab, full)]
  return [
    '`POST …/checkpoints` of a session with 1,000 files of 100 KB, ten of them written anew before each: sandbox frozen,',
    'folders read, new content stored, manifest written, row committed. More than a second lies between two; within one,',
    'all that was written in that second is read again, because its ctime does not yet tell of another change.',
    '',
    ...timesTable(
      timesLine('the first, all files new', [first]),
      timesLine('**10 of 1,000 files changed**', changed, within(P50_MS)),
      timesLine('the same, one at once after the other', atOnce),
      timesLine('nothing changed, at once after that', unchanged),
      timesLine('nothing changed, only the files of an agent', small),
    ),
    '',
    'After each turn there is one by itself. An instant stand-in takes the place of the agent SDK and changes no files.',
    '`done` comes before the checkpoint; a message sent at once after it waits for what is left of it.',
    '',
    ...timesTable(
      timesLine('from `done` to its `checkpoint`', turns.saved),
      timesLine('from `done` to its `checkpoint`, 1,000 files', fullTurns.saved),
      timesLine('a turn, the last one saved', turns.rested),
      timesLine('a turn at once after the last', turns.atOnce),
      timesLine('a turn, the last one saved, 1,000 files', fullTurns.rested),
      timesLine('a turn at once after the last, 1,000 files', fullTurns.atOnce),
    ),
  ]
}

async function timeTurns(lab: LifecycleLab, id: string) {
  const { sessions } = lab.client
  const log = sessions.follow(id)
  const runTurn = () =>
    timed(async () => {
      await sessions.sendAsync(id, 'hello')
      await skipTo(log, 'done')
    })
  const times = { rested: [] as number[], saved: [] as number[], atOnce: [] as number[] }
  // The first turns start what a session starts once.
  for (let turn = 0; turn < 5; turn++) await runTurn()
  for (let turn = 0; turn < TURNS; turn++) times.atOnce.push(await runTurn())
  await skipTo(log, 'checkpoint')
  for (let turn = 0; turn < TURNS; turn++) {
    times.rested.push(await runTurn())
    times.saved.push(await timed(() => skipTo(log, 'checkpoint')))
  }
  await log.return(undefined)
  return times
}

async function skipTo(log: AsyncGenerator<SessionEvent>, type: 'done' | 'checkpoint'): Promise<void> {
  for (;;) {
    const { value, done } = await log.next()
    if (done) throw new Error(`the log ended before ${type}`)
    if (value.type === type) return
    // A checkpoint that failed is told in a line of the log.
    if (value.type === 'error' || (value.type === 'log' && value.data.level === 'error'))
      throw new Error(JSON.stringify(value))
  }
}
