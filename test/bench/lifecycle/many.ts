import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { eventually } from '../../integration/support/sandbox-processes.ts'
import { liveRssMb } from '../support/process-usage.ts'
import { ms, row } from '../support/samples.ts'
import { timed } from '../support/timed.ts'
import { alternate } from './alternate.ts'
import { LifecycleLab } from './lifecycle-lab.ts'
import { table, timesLine, timesTable, yes } from './tables.ts'

const PAUSED = 200
const FIRST = 20
const ROWS = 1000
const IDLE_MS = 4000
const STARTS = { rounds: 4, warmUp: 1 }
const AT_ONCE = 4
const ENV = { ASH_IDLE_TIMEOUT_MS: String(IDLE_MS), NODE_OPTIONS: '--inspect-port=0' }

/** What sessions cost that nobody uses: memory, and time at the start. */
export function many(): Promise<string[]> {
  return LifecycleLab.use({ env: ENV }, async (lab) => {
    const frozenMb = await frozenMemory(lab)
    await createPaused(lab, FIRST)
    const firstMb = await liveRssMb(lab.server)
    const ids = await createPaused(lab, PAUSED - FIRST)
    const allMb = await liveRssMb(lab.server)
    const processes = (await lab.sandboxProcesses()).length
    const perSessionKb = ((allMb - firstMb) * 1024) / (PAUSED - FIRST)
    const forkMs = await fillWithForks(lab, ids[0] ?? '', ROWS - PAUSED)
    const starts = await LifecycleLab.use({}, (empty) => timeStarts(empty, lab))
    return [
      `${PAUSED} sessions, each of which has been live and was left alone for its idle time (ASH_IDLE_TIMEOUT_MS=${IDLE_MS}), so that it is`,
      'paused. Resident memory of the server right after a full garbage collection.',
      '',
      ...table(
        ['', 'server RSS MB', 'sandbox processes', 'no process left'],
        row(`${FIRST} paused sessions`, firstMb.toFixed(1), '', ''),
        row(`${PAUSED} paused sessions`, allMb.toFixed(1), processes, yes(processes === 0)),
        row('**each of them**', `**${perSessionKb.toFixed(0)} KB**`, '', ''),
        row(
          'one that is paused, and frozen until its idle time is over',
          `${frozenMb.toFixed(1)} (its own processes, PSS)`,
          '',
          '',
        ),
      ),
      '',
      `${ROWS} sessions in the database: those ${PAUSED} with their folders, the others forks of one (${ms(forkMs)} ms each to make). From the`,
      'start of the server’s process until it listens, and from then on until a first `GET`, of a page of sessions, has',
      'answered; the last with every session marked as live in the database, as a crash would leave it.',
      '',
      ...timesTable(
        timesLine('empty database: listening', starts.empty),
        timesLine('empty database: a first `GET`', starts.emptyRead),
        timesLine(`${ROWS} sessions: listening`, starts.full),
        timesLine(`${ROWS} sessions: a first \`GET\``, starts.fullRead),
        timesLine(`${ROWS} sessions to recover: listening`, starts.crashed),
      ),
    ]
  })
}

/** Memory of the processes of a session that is paused and still has them. */
async function frozenMemory(lab: LifecycleLab): Promise<number> {
  const id = await lab.create()
  await lab.client.sessions.pause(id)
  const processes = await lab.sandboxProcesses()
  if (processes.length === 0) throw new Error('the sandbox is gone before it was measured')
  const pssKb = await Promise.all(processes.map(({ pid }) => readPssKb(pid)))
  await lab.client.sessions.end(id)
  return pssKb.reduce((sum, kb) => sum + kb, 0) / 1024
}

async function readPssKb(pid: number): Promise<number> {
  const [, kb] = /^Pss:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')) ?? []
  return Number(kb)
}

/** Makes sessions and waits until none has a process. */
async function createPaused(lab: LifecycleLab, count: number): Promise<string[]> {
  const ids: string[] = []
  let left = count
  const create = async () => {
    while (left-- > 0) ids.push(await lab.create())
  }
  await Promise.all(Array.from({ length: AT_ONCE }, create))
  const remaining = async () => (await lab.sandboxProcesses()).length
  await eventually(remaining, (processes) => processes === 0, 60_000)
  const { sessions } = await lab.client.sessions.list({ status: 'active' })
  if (sessions.length > 0) throw new Error('sessions without a process are not paused')
  return ids
}

async function fillWithForks(lab: LifecycleLab, id: string, count: number): Promise<number> {
  const { checkpoints } = await lab.client.checkpoints.list(id)
  const checkpointId = checkpoints[0]?.id
  const started = performance.now()
  for (let made = 0; made < count; made++) await lab.post(`/api/sessions/${id}/fork`, { checkpointId })
  return (performance.now() - started) / count
}

/** In turns, the empty one and the full one. */
async function timeStarts(empty: LifecycleLab, full: LifecycleLab) {
  const answered = (lab: LifecycleLab) => () => timed(() => lab.client.sessions.list({ limit: 1 }))
  const starts =
    (lab: LifecycleLab, before: () => void = () => {}) =>
    async () => {
      await lab.stop('kill')
      before()
      return timed(() => lab.server.start())
    }
  return alternate(STARTS, {
    empty: starts(empty),
    emptyRead: answered(empty),
    full: starts(full),
    fullRead: answered(full),
    crashed: starts(full, () => markLive(full)),
  })
}

/** As a crash leaves sessions: the database says that they have a sandbox. */
function markLive({ server }: LifecycleLab): void {
  const db = new DatabaseSync(join(server.dataDir, 'ash.db'))
  db.exec(`update sessions set status = 'active' where status = 'paused'`)
  db.close()
}
