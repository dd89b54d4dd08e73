import { createHash, randomUUID } from 'node:crypto'
import { type FileScan, scanFiles, sessionDirs } from '@ash-ai/sandbox'
import { AshError, type ExecuteOnce, type ExecuteRequest } from '@ash-ai/shared'
import type { SpareInterpreter } from '../sandboxes/spare.ts'
import type { EventLog } from '../sessions/event-log.ts'
import { getOpenSession } from '../sessions/open-session.ts'
import { readRunSettings } from '../sessions/run-settings.ts'
import { fenceOf, type SessionRow } from '../sessions/session-queries.ts'
import { assertRoomForReader } from '../sessions/stream-log.ts'
import { type ExecutionRow, findExecutionByKey, hasExecutions, insertExecution } from './execution-queries.ts'
import { executionEvent } from './execution-reply.ts'
import type { AcceptedExecution, ExecutionDeps } from './executions.ts'
import { Job } from './job.ts'
import { kernelsOf } from './kernels.ts'
import type { Place } from './lane.ts'
import { runJob } from './run-job.ts'
import { eventText, planRun, type RunInput, type RunPlan, type RunSession } from './run-plan.ts'

/** Whoever wants something run. */
export interface Caller {
  tenantId: string
  /** A second request with this key is the same request. */
  idempotencyKey?: string | undefined
  /** Somebody waits for the outcome and can be told that there is no room. */
  isWaiting: boolean
  /** They follow the log of the session meanwhile. */
  isReader?: boolean
}

/** A key, and what came with it. */
export interface Once {
  key: string
  hash: string
}

/** Accepts code for a session: resolves when that is durable. The run then goes to its end by itself. */
export function acceptExecution(
  deps: ExecutionDeps,
  caller: Caller,
  sessionId: string,
  request: ExecuteRequest,
): Promise<AcceptedExecution> {
  const event = eventText(request)
  return acceptOnce(deps, caller, { place: sessionId, request, event }, (once) =>
    acceptNew(deps, caller, sessionId, { request, event }, once),
  )
}

/** Calls `accept` unless the key was used: then its execution is the answer, where the request is the same. */
export async function acceptOnce(
  deps: ExecutionDeps,
  { tenantId, idempotencyKey: key }: Caller,
  given: GivenRun,
  accept: (once: Once | undefined) => Promise<AcceptedExecution | undefined>,
): Promise<AcceptedExecution> {
  deps.runs.assertRunning()
  if (key === undefined) return (await accept(undefined)) ?? lost()
  const { accepting } = deps.runs
  const hash = hashOf(given)
  const twin = accepting.get(`${tenantId} ${key}`)
  if (twin) return assertSame(twin.hash, hash, twin.accepted)
  const known = () => findKnown(deps, tenantId, { key, hash })
  const accepted = known().then(
    async (found) => found ?? (await accept({ key, hash })) ?? (await known()) ?? lost(),
  )
  accepting.set(`${tenantId} ${key}`, { hash, accepted })
  try {
    return await accepted
  } finally {
    accepting.delete(`${tenantId} ${key}`)
  }
}

function lost(): never {
  throw new AshError('session_conflict', 'The execution was accepted and taken back. Send it again.')
}

async function findKnown(
  deps: ExecutionDeps,
  tenantId: string,
  { key, hash }: Once,
): Promise<AcceptedExecution | undefined> {
  const row = await findExecutionByKey(deps.db, tenantId, key)
  return row && assertSame(row.request_hash, hash, { row, job: deps.runs.find(row.id) })
}

function assertSame<Value>(knownHash: string | null, hash: string, value: Value): Value {
  if (knownHash === hash) return value
  throw new AshError('idempotency_conflict', 'The Idempotency-Key belongs to another request; use a new one')
}

/** What a client sent, and whereto. */
export interface GivenRun {
  place: string
  request: ExecuteRequest | ExecuteOnce
  /** That of the request, as text. */
  event: string | undefined
}

/** How the reply comes makes no other request. */
function hashOf({ place, request: given, event = '' }: GivenRun): string {
  const { stream: _stream, async: _async, event: _event, ...request } = given
  const hash = createHash('sha256')
  for (const part of [place, JSON.stringify(request), event]) hash.update(part).update('\0')
  return hash.digest('hex')
}

/** Undefined where somebody else was quicker with the same key. */
async function acceptNew(
  deps: ExecutionDeps,
  caller: Caller,
  sessionId: string,
  { request, event }: { request: ExecuteRequest; event: string | undefined },
  once: Once | undefined,
): Promise<AcceptedExecution | undefined> {
  const session = await getOpenSession(deps.db, caller.tenantId, sessionId)
  if (!deps.live.awake(sessionId)) assertWakes(session)
  const plan = planRun(request, runSessionOf(session), event)
  const free = session.mode === 'ephemeral' ? await reserveFirst(deps, session) : undefined
  try {
    const log = await deps.logs.get(fenceOf(session))
    assertRoomInLog(deps, log)
    if (caller.isReader) assertRoomForReader(log)
    const row = newExecution(deps, session, plan, once)
    const beginsBy = () => (isWaitedFor(deps, row) ? ('reuse' as const) : undefined)
    const parts = { row, session, input: plan.input, log, beginsBy }
    return await startJob(deps, parts, caller, () => insertExecution(deps.db, row))
  } finally {
    free?.()
  }
}

/** Its kernel is there and has nothing to do. */
function isWaitedFor({ live }: ExecutionDeps, { session_id, language, kernel }: ExecutionRow): boolean {
  const session = kernel === null ? undefined : live.awake(session_id)
  return session !== undefined && kernel !== null && kernelsOf(session).isIdle(language, kernel)
}

/** What a job is made of. */
export interface JobParts {
  row: ExecutionRow
  session: SessionRow
  input: RunInput
  log: EventLog
  /** The session was made for this run. */
  ownsSession?: boolean
  /** What it begins in as soon as it has its place: then it is stored as begun, with one commit instead of two. */
  beginsBy?: () => 'reuse' | 'warm' | undefined
  /** The files of the workspace, looked at already. */
  filesBefore?: Promise<FileScan | undefined> | undefined
  /** What it is to run in. */
  spare?: SpareInterpreter | undefined
}

/** Takes a place, stores the execution, and lets it run. Undefined where `store` says that it is there already. */
export async function startJob(
  deps: ExecutionDeps,
  parts: JobParts,
  { isWaiting }: Pick<Caller, 'isWaiting'>,
  store: () => Promise<boolean>,
): Promise<AcceptedExecution | undefined> {
  deps.runs.assertRoom(parts.row.session_id, sizeOf(parts))
  const place = deps.runs.enter(parts.row)
  const path = place.isWaiting ? undefined : parts.beginsBy?.()
  if (path) Object.assign(parts.row, { status: 'running', started_at: Date.now(), path })
  let filesBefore: Promise<FileScan | undefined> | undefined
  try {
    const storing = store()
    const storedFromMs = performance.now()
    // Its folders are there for sure, and until it is stored nothing of it runs.
    if (path === 'reuse') filesBefore = filesOf(deps, parts.row)
    if (!(await storing)) {
      place.leave()
      return undefined
    }
    // What others write meanwhile is not the run's.
    if (performance.now() - storedFromMs > FRESH_SCAN_MS) filesBefore = undefined
  } catch (error) {
    place.leave()
    throw error
  }
  const isRefusable = isWaiting && !place.isWaiting
  const job = addJob(deps, { ...parts, filesBefore }, place, isRefusable)
  // Whoever reads the log hears of what has to wait. Where this fails, so does what follows it.
  if (!isRefusable || job.row.status === 'running')
    job.log.append('execution', job.id, executionEvent(job.row)).catch(() => {})
  void runJob(deps, job)
  return { row: parts.row, job }
}

const FRESH_SCAN_MS = 20

/** Undefined where they cannot be read, which whoever runs it will find out. */
const filesOf = ({ dataDir }: ExecutionDeps, { session_id }: ExecutionRow) =>
  scanFiles(sessionDirs(dataDir, session_id).workspace).catch(() => undefined)

/** Characters that it holds until it has run. */
const sizeOf = ({ row, input }: Pick<JobParts, 'row' | 'input'>) =>
  row.code.length + (input.event?.length ?? 0)

/** A job for what is stored, not begun yet. */
export function addJob(deps: ExecutionDeps, parts: JobParts, place: Place, isRefusable: boolean): Job {
  const { maxLogChars } = deps
  const job = new Job({
    ownsSession: false,
    ...parts,
    place,
    isRefusable,
    maxLogChars,
    size: sizeOf(parts),
  })
  deps.runs.add(job)
  return job
}

/** A session may be made to wake only when somebody asks for that. */
function assertWakes({ id, status, auto_resume }: SessionRow): void {
  if (auto_resume === 1 || (status !== 'paused' && status !== 'error')) return
  throw new AshError('session_paused', `Session ${id} is ${status}. Resume it first.`)
}

function runSessionOf(session: Pick<SessionRow, 'mode' | 'run_settings'>): RunSession {
  const { languages, timeoutMs } = readRunSettings(session)
  return { mode: session.mode, languages, timeoutMs }
}

/** Nobody else can have the session from here until it has its job. Returns what gives it free again. */
async function reserveFirst({ db, runs }: ExecutionDeps, { id, tenant_id }: SessionRow): Promise<() => void> {
  const free = runs.reserve(id)
  try {
    if (free && !(await hasExecutions(db, tenant_id, id))) return free
  } catch (error) {
    free?.()
    throw error
  }
  free?.()
  throw new AshError(
    'session_conflict',
    `Session ${id} is for one execution and has had it; make another session, or a persistent one`,
  )
}

function assertRoomInLog({ maxLogChars }: ExecutionDeps, log: EventLog): void {
  if (log.totalChars < maxLogChars) return
  throw new AshError('log_full', `The log of the session has reached its limit of ${maxLogChars} characters`)
}

export function newExecution(
  deps: ExecutionDeps,
  { id: sessionId, tenant_id: tenantId }: Pick<SessionRow, 'id' | 'tenant_id'>,
  { input, what }: RunPlan,
  once: Once | undefined,
): ExecutionRow {
  const id = randomUUID()
  const isPlain = Object.keys(input).length === 0
  return {
    id,
    tenant_id: tenantId,
    session_id: sessionId,
    owner_id: deps.hostId,
    status: 'pending',
    ...what,
    input_sealed: isPlain ? null : deps.secrets.seal(input, inputAad(tenantId, id)),
    attempt: 1,
    path: null,
    is_new_kernel: null,
    result: null,
    results: null,
    error: null,
    exit_code: null,
    signal: null,
    truncated: 0,
    artifacts: null,
    artifacts_complete: 1,
    artifacts_until: null,
    artifacts_bytes: null,
    metrics: null,
    idempotency_key: once?.key ?? null,
    request_hash: once?.hash ?? null,
    created_at: Date.now(),
    started_at: null,
    finished_at: null,
  }
}

const inputAad = (tenantId: string, executionId: string) => `execution-input:${tenantId}:${executionId}`

/** What was stored with an execution that is not over. */
export function openInput({ secrets }: ExecutionDeps, row: ExecutionRow): RunInput {
  if (row.input_sealed === null) return {}
  return secrets.open(row.input_sealed, inputAad(row.tenant_id, row.id)) as RunInput
}
