import type { DiskBackend, SandboxPool } from '@ash-ai/sandbox'
import { AshError, type ExecuteRequest } from '@ash-ai/shared'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { AgentLayers } from '../agents/agent-layers.ts'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createLogger } from '../http/logger.ts'
import { EventLogs } from '../sessions/event-log.ts'
import { LiveSessions } from '../sessions/live-sessions.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { fenceOf, getSession, insertSession, type SessionRow } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { acceptExecution } from './accept-execution.ts'
import { hasExecutions } from './execution-queries.ts'
import type { ExecutionDeps } from './executions.ts'
import { withExecutions } from './with-executions.ts'

const CODE: ExecuteRequest = { code: '1' }
const patient = { tenantId: 'default', isWaiting: false }

let opened: TestDb
let deps: ExecutionDeps
const assertRoom = vi.fn<SandboxPool['assertRoom']>()
beforeEach(async () => {
  opened = await openSqliteTestDb()
  const sessions: Partial<SessionDeps> = {
    db: opened.db,
    dataDir: opened.dataDir,
    hostId: 'host-a',
    pool: { max: 1, assertRoom } as unknown as SandboxPool,
    disk: { ensureMounted: async () => {}, remove: async () => {} } as unknown as DiskBackend,
    layers: {} as AgentLayers,
    assertSandboxing: async () => {},
    log: createLogger('silent'),
    logs: new EventLogs(opened.db),
    live: new LiveSessions(),
    maxLogChars: 1e9,
  }
  const artifacts = { artifactDays: 1, maxArtifactBytes: 1 }
  deps = withExecutions(sessions as SessionDeps, { registry: new Registry(), ...artifacts })
})
afterEach(async () => {
  vi.useRealTimers()
  await opened.close()
})

async function newSession(change: Partial<SessionRow> = {}): Promise<SessionRow> {
  const row = sessionRow({ status: 'active', agent_name: null, agent_version: null, ...change })
  await insertSession(opened.db, row)
  return row
}

test('what nobody waits for fails with pool_full when there was no room for all of its time', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  assertRoom.mockImplementation(() => {
    // The first look begins the wait; by the second its time is over.
    if (assertRoom.mock.calls.length === 2) vi.advanceTimersByTime(600_000)
    throw new AshError('pool_full', 'All 1 sandboxes are running')
  })
  const session = await newSession({ mode: 'ephemeral' })
  const { job } = await acceptExecution(deps, patient, session.id, CODE)
  const ended = await job?.ended
  expect([ended?.status, ended?.attempt, assertRoom.mock.calls.length]).toEqual(['failed', 1, 2])
  expect(JSON.parse(ended?.error ?? '')).toEqual({
    name: 'pool_full',
    message: 'All 1 sandboxes are running',
  })
  await deps.runs.settled()
  expect(await getSession(opened.db, 'default', session.id)).toMatchObject({ status: 'ended' })
})

test('code is not accepted from whoever would follow it and finds too many readers', async () => {
  const session = await newSession()
  const log = await deps.logs.get(fenceOf(session))
  const leave = new AbortController()
  const readers = Array.from({ length: 1_000 }, () => log.read({ seq: 0, sub: 0 }, leave.signal).next())
  const refused = acceptExecution(deps, { ...patient, isReader: true }, session.id, CODE)
  await expect(refused).rejects.toMatchObject({ code: 'too_many_readers' })
  expect(await hasExecutions(opened.db, 'default', session.id)).toBe(false)
  expect(deps.runs.of(session.id)).toEqual([])
  leave.abort()
  await Promise.all(readers)
})
