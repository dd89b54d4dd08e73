import { PostgresServer } from '@ash-ai/server/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { bash, scripted } from '../support/conversation.ts'
import { startTestServer } from '../support/test-server.ts'
import { faultRunTimeoutMs, type RunSize, runWithFaults } from './support/fault-run.ts'
import type { FaultPlan, PlannedTurn, Victim } from './support/fault-session.ts'
import { buildPacedBridge } from './support/paced-bridge.ts'
import { answerOf, type PacedTurn } from './support/paced-turn.ts'
import { FAULT_SEED, FAULT_TURNS, Random, withSeed } from './support/random.ts'
import { lastingPort } from './support/restarts.ts'
import { postgresLog, type ReadStored, sqliteLog } from './support/stored-log.ts'

// Whoever is killed, and wherever: readers that come back have each entry of the log once, every turn has one end,
// a finished turn has its whole answer and a broken one a beginning of it.

const times = (count: number, victim?: Victim) => Array<Victim | undefined>(count).fill(victim)

async function run(size: RunSize, env: Record<string, string>, plan: Plan): Promise<void> {
  const random = new Random(FAULT_SEED)
  const server = await startTestServer({ env: { ...env, ASH_PORT: String(await lastingPort(random)) } })
  try {
    const ends = await runWithFaults(
      { ...plan, readStored: plan.stored(server.dataDir) },
      server,
      random,
      size,
    )
    expect(ENDS).toEqual(expect.arrayContaining([...ends.keys()]))
    // Or the kills have missed, and nothing was tested.
    const turns = [...ends.values()].reduce((sum, count) => sum + count, 0)
    expect(turns).toBeGreaterThanOrEqual(size.turns)
    const doneShare = (ends.get('done') ?? 0) / turns
    expect(doneShare).toBeGreaterThan(0.25)
    expect(doneShare).toBeLessThan(0.95)
  } finally {
    await server.close()
  }
}

/** How a turn may end here; `lost` is a message that was never acknowledged. */
const ENDS = ['done', 'lost', 'interrupted', 'sandbox_died', 'agent_crashed']

type Plan = Omit<FaultPlan, 'readStored'> & { stored: (dataDir: string) => ReadStored }

describe('with an instant agent', () => {
  let bridge: Awaited<ReturnType<typeof buildPacedBridge>>
  beforeAll(async () => {
    bridge = await buildPacedBridge()
  })
  afterAll(() => bridge[Symbol.asyncDispose]())

  const deck = [
    ...times(1, 'server'),
    ...times(3, 'bridge'),
    ...times(2, 'sender'),
    ...times(4, 'reader'),
    ...times(1, 'client'),
    ...times(7),
  ]

  function planTurn(random: Random, mark: string): PlannedTurn {
    const pieces = 5 + random.below(30)
    const turn: PacedTurn = { mark, pieces, pieceChars: 40 + random.below(4000), paceMs: random.below(4) }
    return { prompt: JSON.stringify(turn), answer: answerOf(turn), events: pieces + 4 }
  }

  test(
    'on SQLite',
    () =>
      withSeed(async () => {
        const size = { turns: FAULT_TURNS, sessions: 3 }
        await run(size, { ASH_BRIDGE_ENTRY: bridge.path }, { deck, planTurn, stored: sqliteLog })
      }),
    faultRunTimeoutMs(FAULT_TURNS),
  )

  const postgresTurns = Math.ceil(FAULT_TURNS / 4)
  test(
    'on Postgres',
    () =>
      withSeed(async () => {
        const postgres = await PostgresServer.start()
        const { url, drop } = await postgres.createDatabase('faults')
        const env = { ASH_BRIDGE_ENTRY: bridge.path, ASH_DATABASE_URL: url }
        await run({ turns: postgresTurns, sessions: 3 }, env, {
          deck,
          planTurn,
          stored: () => postgresLog(url),
        })
        await drop()
      }),
    faultRunTimeoutMs(postgresTurns),
  )
})

describe('with the real agent SDK', () => {
  const deck = [
    ...times(1, 'server'),
    ...times(1, 'bridge'),
    ...times(2, 'claude'),
    ...times(1, 'sender'),
    ...times(1, 'reader'),
    ...times(1, 'client'),
    ...times(3),
  ]

  function planTurn(random: Random, mark: string): PlannedTurn {
    const tools = 1 + random.below(3)
    const texts = Array.from({ length: tools + 1 }, (_, index) => `${mark} part ${index}. `.repeat(3))
    const steps = texts.map((text, index) =>
      index < tools ? { text, ...bash('true') } : { text, chunkSize: 20, chunkDelayMs: 5 },
    )
    return { prompt: scripted(...steps), answer: texts.join(''), events: 4 + 3 * tools }
  }

  const turns = Math.ceil((FAULT_TURNS * 3) / 20)
  test(
    'on SQLite',
    () =>
      withSeed(async () => {
        await run({ turns, sessions: 2 }, {}, { deck, planTurn, stored: sqliteLog })
      }),
    faultRunTimeoutMs(turns),
  )
})
