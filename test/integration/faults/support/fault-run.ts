import { deployTestAgent } from '../../support/conversation.ts'
import { eventually, type ProcessInfo } from '../../support/sandbox-processes.ts'
import type { TestServer } from '../../support/test-server.ts'
import { type FaultPlan, FaultSession } from './fault-session.ts'
import type { Random } from './random.ts'
import { Restarts } from './restarts.ts'

const START_MS = 30_000
const TURN_MS = 1_500

/** Turns in all, and sessions that share them. */
export interface RunSize {
  turns: number
  sessions: number
}

export const faultRunTimeoutMs = (turns: number) => START_MS + turns * TURN_MS

/**
 * Sessions at work at once, with kills in the middle of most turns. Checks every promise of their logs at the end;
 * resolves with how many turns ended how.
 */
export async function runWithFaults(
  plan: FaultPlan,
  server: TestServer,
  random: Random,
  { turns, sessions: count }: RunSize,
): Promise<Map<string, number>> {
  await deployTestAgent(server.client)
  const restarts = new Restarts(server, random.fork())
  const sessions: FaultSession[] = []
  for (let index = 0; index < count; index++) {
    sessions.push(await FaultSession.create(plan, server, restarts, random.fork()))
  }
  const deadline = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => deadline.reject(new Error(`hangs:\n${sessions.map((session) => session.describe()).join('\n')}`)),
    faultRunTimeoutMs(turns) - START_MS / 3,
  )
  try {
    return await Promise.race([deadline.promise, runToEnd(sessions, turns, restarts, server)])
  } finally {
    clearTimeout(timer)
    for (const session of sessions) session.leave()
  }
}

async function runToEnd(
  sessions: FaultSession[],
  turns: number,
  restarts: Restarts,
  server: TestServer,
): Promise<Map<string, number>> {
  await Promise.all(sessions.map((session) => session.run(Math.ceil(turns / sessions.length))))
  await restarts.up()
  const ends = (await Promise.all(sessions.map((session) => session.check()))).flat()
  await eventually(
    () => listAgentProcesses(server),
    (processes) => processes.length === 0,
  )
  return new Map([...Map.groupBy(ends, (end) => end)].map(([end, all]) => [end, all.length]))
}

/**
 * What runs inside sandboxes. Not bwrap: when it is killed with its server between the clone of its child and the
 * release of it, that child waits for ever, before it has run anything.
 */
async function listAgentProcesses(server: TestServer): Promise<ProcessInfo[]> {
  return (await server.listSandboxProcesses()).filter(({ command }) => command.startsWith('/opt/ash/'))
}
