import { liveRssMb } from './support/process-usage.ts'
import { interleave, ms, row, summarize } from './support/samples.ts'
import type { Target } from './support/stream-connection.ts'
import { type Measured, StreamingLab } from './support/streaming-lab.ts'
import { timeThreadRoundTrips } from './support/thread-round-trip.ts'
import { openLogTimer } from './support/time-log-writes.ts'
import { emitPrompt, turnMessages } from './support/turn-messages.ts'

const PARTS: Record<string, () => Promise<string[]>> = { overhead, rate, turns, workspace, idle }

/** What Ash's streams cost, against the barest server that could do the same, in the same run. */
export async function streaming(names: string[]): Promise<string[]> {
  const unknown = names.find((name) => !(name in PARTS))
  if (unknown !== undefined)
    throw new Error(`streaming has no part "${unknown}". There are: ${Object.keys(PARTS).join(', ')}`)
  const lines = [...INTRODUCTION]
  for (const [name, part] of Object.entries(PARTS)) {
    if (names.length > 0 && !names.includes(name)) continue
    console.error(`streaming ${name} …`)
    lines.push('', `## ${name}`, '', ...(await part()))
  }
  return lines
}

const INTRODUCTION = [
  'Ash runs whole (HTTP, keys, log with commit before send, SQLite, bwrap, bridge); an instant stand-in takes the',
  "agent SDK's place. The floor is bare Fastify that writes the request to the Unix socket of another process and",
  'each line of its answer as one SSE frame, with as many processes as Ash has bridges. The clients are one process',
  'with a kept connection for each session. Ash and the floor take turns of some tenths of a second. Files are saved',
  'only when a session pauses: what a checkpoint after each turn costs is in lifecycle.md.',
]

const yes = (isMet: boolean) => (isMet ? 'yes' : '**no**')
const table = (head: string[], ...rows: string[]) => [row(...head), row(...head.map(() => '---')), ...rows]
const HELLO = 'hello'

const OVERHEAD = { p50Ms: 0.5, p99Ms: 2 }
const SESSIONS = [1, 16, 64]
const WARM_UP_MS = 2000
const PACED_TURNS_PER_SECOND = 200

async function overhead(): Promise<string[]> {
  const thread = summarize(await timeThreadRoundTrips())
  const lab = await StreamingLab.start(1)
  const rows: string[] = []
  try {
    await lab.growBridged(1)
    await alternateTurns(lab, 0, { forMs: WARM_UP_MS })
    for (const sessions of SESSIONS) {
      await lab.grow(sessions)
      await lab.growBridged(sessions)
      rows.push(...overheadRows(`${sessions}`, await alternateTurns(lab, 8, { forMs: 300 })))
      if (sessions === 1) continue
      const pauseMs = (1000 * sessions) / PACED_TURNS_PER_SECOND
      const paced = await alternateTurns(lab, 7, { forMs: 600, pauseMs })
      rows.push(...overheadRows(`${sessions}, ${PACED_TURNS_PER_SECOND} turns/s`, paced))
    }
  } finally {
    await lab.close()
  }
  return [
    'A turn of three SDK messages, five events, from the request to the last byte of its stream. Every session sends',
    'its next message as soon as the last is answered, so that with many sessions a turn mostly waits for the others;',
    `where a rate is given, the sessions together send that many. Target: ≤ ${OVERHEAD.p50Ms} ms added at p50, ≤ ${OVERHEAD.p99Ms} ms at p99.`,
    '`CPU/turn` is the processor time of the server process, all threads, which other work on the machine sways least.',
    "`bridges` is the floor with Ash's own bridges, without sandboxes, in place of the echoes: what the server itself adds is",
    `the difference to that. Of it, two commits by the writer thread: a bare message to a thread and back takes ${ms(thread.p50)} ms here at`,
    `p50 and ${ms(thread.p99)} ms at p99, before anything is stored.`,
    '',
    ...table(['sessions', '', 'n', 'p50 ms', 'p99 ms', 'CPU/turn ms', 'target met'], ...rows),
  ]
}

const alternateTurns = (lab: StreamingLab, rounds: number, pace: { forMs: number; pauseMs?: number }) =>
  lab.alternate(rounds, {
    floor: { targets: lab.floor, content: HELLO, ...pace },
    bridged: { targets: lab.bridged, content: HELLO, ...pace },
    ash: { targets: lab.ash, content: HELLO, ...pace },
  })

function overheadRows(
  sessions: string,
  { floor, bridged, ash }: Record<'floor' | 'bridged' | 'ash', Measured>,
): string[] {
  const perTurn = ({ serverCpuMs, turnMs }: Measured) => serverCpuMs / turnMs.length
  const [low, middle, high] = [summarize(floor.turnMs), summarize(bridged.turnMs), summarize(ash.turnMs)]
  const [p50, p99] = [high.p50 - low.p50, high.p99 - low.p99]
  const met = `p50 ${yes(p50 <= OVERHEAD.p50Ms)}, p99 ${yes(p99 <= OVERHEAD.p99Ms)}`
  return [
    row(sessions, 'floor', low.n, ms(low.p50), ms(low.p99), ms(perTurn(floor)), ''),
    row(sessions, 'bridges', middle.n, ms(middle.p50), ms(middle.p99), ms(perTurn(bridged)), ''),
    row(sessions, 'Ash', high.n, ms(high.p50), ms(high.p99), ms(perTurn(ash)), ''),
    row(
      sessions,
      '**added**',
      '',
      `**${ms(p50)}**`,
      `**${ms(p99)}**`,
      ms(perTurn(ash) - perTurn(floor)),
      met,
    ),
  ]
}

const RATE = { count: 10_000, bytes: 200, rounds: 8, share: 0.5 }

async function rate(): Promise<string[]> {
  const emission = { count: RATE.count, bytes: RATE.bytes }
  const content = emitPrompt(emission)
  const entries = Array.from(turnMessages(emission), (message) => JSON.stringify(message))
  const logTimer = await openLogTimer()
  const lab = await StreamingLab.start(1)
  const runTurn = async (targets: Target[]) => {
    const { turnMs, events } = await lab.load({ targets, content, forMs: 0 })
    // Beside the messages of the turn: `turn` and `done`.
    if (events !== entries.length + 2) throw new Error(`${events} events of ${entries.length + 2} came`)
    return turnMs[0] ?? Number.NaN
  }
  const runs = {
    floor: () => runTurn(lab.floor),
    ash: () => runTurn(lab.ash),
    log: () => logTimer.time(entries),
  }
  try {
    await interleave(2, runs)
    const samples = await interleave(RATE.rounds, runs)
    const [floor, ash, log] = [samples.floor?.p50 ?? 0, samples.ash?.p50 ?? 0, samples.log?.p50 ?? 0]
    const line = (name: string, timeMs: number, last: string) =>
      row(
        name,
        ms(timeMs),
        Math.round(RATE.count / (timeMs / 1000)),
        `${Math.round((100 * floor) / timeMs)} %`,
        last,
      )
    return [
      `One turn of ${RATE.count} messages of ${RATE.bytes} bytes, median of ${RATE.rounds}. Target: ≥ ${RATE.share * 100} % of the floor's rate. The log alone is the same`,
      `entries written through the same log and database with no bridge and no client: ${Math.round((100 * log) / ash)} % of Ash's time, part of it beside other work.`,
      '',
      ...table(
        ['', 'ms', 'messages/s', "share of the floor's rate", 'target met'],
        line('floor', floor, ''),
        line('Ash', ash, yes(floor / ash >= RATE.share)),
        line('the log alone', log, ''),
      ),
    ]
  } finally {
    await lab.close()
    await logTimer.close()
  }
}

const TURNS = { clients: 16, share: 0.5 }

async function turns(): Promise<string[]> {
  const lab = await StreamingLab.start(TURNS.clients)
  try {
    await lab.growBridged(TURNS.clients)
    await alternateTurns(lab, 0, { forMs: WARM_UP_MS })
    const { floor, bridged, ash } = await alternateTurns(lab, 15, { forMs: 500 })
    const perSecond = ({ turnMs, elapsedMs }: Measured) => turnMs.length / (elapsedMs / 1000)
    const share = perSecond(ash) / perSecond(floor)
    const line = (name: string, load: Measured, last: string) =>
      row(
        name,
        Math.round(perSecond(load)),
        `${Math.round((100 * perSecond(load)) / perSecond(floor))} %`,
        ms(load.serverCpuMs / load.turnMs.length),
        last,
      )
    return [
      `Short turns of ${TURNS.clients} clients, each in a session of its own. Target: ≥ ${TURNS.share * 100} % of the floor's.`,
      "`bridges` is the floor with Ash's own bridges in place of the echoes.",
      '',
      ...table(
        ['', 'turns/s', 'share', 'CPU/turn ms', 'target met'],
        line('floor', floor, ''),
        line('bridges', bridged, ''),
        line('Ash', ash, yes(share >= TURNS.share)),
      ),
    ]
  } finally {
    await lab.close()
  }
}

const WORKSPACE = { files: 2000, slower: 1.1 }

async function workspace(): Promise<string[]> {
  const lab = await StreamingLab.start(3)
  try {
    const [, full = ''] = lab.sessionIds
    const command = `mkdir files && cd files && for i in $(seq ${WORKSPACE.files}); do echo "file $i" > $i; done`
    const { exitCode } = await lab.server.client.sessions.exec(full, { command })
    if (exitCode !== 0) throw new Error(`the files were not made: ${exitCode}`)
    const [withNone, withFiles, neighbour] = lab.ash.map((target) => [target])
    if (!withNone || !withFiles || !neighbour) throw new Error('no sessions')
    const job = { content: HELLO, forMs: 300 }
    const loads = await lab.alternate(15, {
      empty: { targets: withNone, ...job },
      full: { targets: withFiles, ...job },
      besideEmpty: { targets: neighbour, beside: withNone, ...job },
      besideFull: { targets: neighbour, beside: withFiles, ...job },
    })
    const rows = (name: string, base: Measured, load: Measured) => {
      const [before, after] = [summarize(base.turnMs), summarize(load.turnMs)]
      const ratio = after.p50 / before.p50
      return [
        row(name, 'empty', before.n, ms(before.p50), ms(before.p99), '1.00', ''),
        row(
          name,
          WORKSPACE.files,
          after.n,
          ms(after.p50),
          ms(after.p99),
          ratio.toFixed(2),
          yes(ratio <= WORKSPACE.slower),
        ),
      ]
    }
    return [
      `Short turns one after the other in a session with ${WORKSPACE.files} files in its workspace and in an empty one, and the turns of a`,
      `neighbour, itself empty, beside each. Target: at most ${Math.round(WORKSPACE.slower * 100 - 100)} % slower at p50.`,
      '',
      ...table(
        ['turn', 'files', 'n', 'p50 ms', 'p99 ms', 'ratio p50', 'target met'],
        ...rows('to `done`', loads.empty, loads.full),
        ...rows("a neighbour's", loads.besideEmpty, loads.besideFull),
      ),
    ]
  } finally {
    await lab.close()
  }
}

const IDLE = { streams: 500, sessions: 10, rssMb: 60, p99Ms: 3 }

async function idle(): Promise<string[]> {
  const lab = await StreamingLab.start(IDLE.sessions + 1, { NODE_OPTIONS: '--inspect-port=0' })
  try {
    const pace = { content: HELLO, forMs: 300 }
    const one = {
      floor: { targets: lab.floor.slice(-1), ...pace },
      ash: { targets: lab.ash.slice(-1), ...pace },
    }
    const before = await lab.alternate(15, one)
    const rssBefore = await liveRssMb(lab.server)
    const ids = lab.sessionIds.slice(0, IDLE.sessions)
    const targets = Array.from({ length: IDLE.streams }, (_, index) =>
      lab.target(`/api/sessions/${ids[index % ids.length]}/stream`),
    )
    await lab.load({ targets, follow: true })
    const rssAfter = await liveRssMb(lab.server)
    const after = await lab.alternate(15, one)
    const line = (name: string, { turnMs }: Measured, rss: string, last: string) => {
      const { n, p50, p99 } = summarize(turnMs)
      return row(name, n, ms(p50), ms(p99), rss, last)
    }
    const [grown, { p99 }] = [rssAfter - rssBefore, summarize(after.ash.turnMs)]
    const met = `p99 ${yes(p99 <= IDLE.p99Ms)}, RSS ${yes(grown <= IDLE.rssMb)}`
    return [
      `${IDLE.streams} open streams of ${IDLE.sessions} other sessions in which nothing happens, and the turns of one session one after the other.`,
      `Target: the streams cost ≤ ${IDLE.rssMb} MB of the server's resident memory in all, and a turn's p99 stays ≤ ${IDLE.p99Ms} ms. Memory is`,
      'measured right after a full garbage collection, before and after the streams are opened.',
      '',
      ...table(
        ['', 'n', 'p50 ms', 'p99 ms', 'RSS MB', 'target met'],
        line('floor, no streams', before.floor, '', ''),
        line('Ash, no streams', before.ash, rssBefore.toFixed(1), ''),
        line('floor, same time', after.floor, '', ''),
        line(`Ash, ${IDLE.streams} streams`, after.ash, rssAfter.toFixed(1), met),
        row('**the streams**', '', '', '', `**${grown.toFixed(1)}**`, ''),
      ),
    ]
  } finally {
    await lab.close()
  }
}
