import type { ServerResponse } from 'node:http'
import { afterEach, expect, test } from 'vitest'
import { type Api, type CliResult, runCli, SESSION, sendJson, startApi } from '../testing/run-cli.ts'

const BASE = `/api/sessions/${SESSION.id}`
const PAUSED = { ...SESSION, status: 'paused', sandboxState: 'cold' }
const FORK = { ...PAUSED, id: '11111111-6f0e-4a3e-9f3a-3d1c3f0d7a11', parentSessionId: SESSION.id }
const CHECKPOINT = {
  id: 'c2a90000-6f0e-4a3e-9f3a-3d1c3f0d7a11',
  sessionId: SESSION.id,
  seq: 12,
  reason: 'turn',
  files: 1,
  bytes: 2048,
  isCurrent: true,
  isUploaded: false,
  createdAt: '2026-01-02T00:00:00.000Z',
}

let api: Api | undefined
afterEach(() => api?.close())

/** Runs a command against a server that knows these replies and no others. */
async function run(args: string[], replies: Record<string, unknown>, status = 200): Promise<CliResult> {
  const routes = Object.entries(replies).map(([route, body]) => [
    route,
    (response: ServerResponse) => sendJson(response, status, body),
  ])
  api = await startApi(Object.fromEntries(routes))
  return await runCli([...args, '--url', api.url])
}

test.each(['pause', 'stop'])('%s says what the session is now', async (what) => {
  const result = await run(['session', what, SESSION.id], { [`POST ${BASE}/${what}`]: { session: PAUSED } })
  expect(result).toEqual({ code: 0, stdout: `✓ ${SESSION.id} is paused\n`, stderr: '' })
})

test.each([
  ['none', 'it was already'],
  ['warm', 'warm'],
  ['cold_local', 'files of the server'],
  ['cold_remote', 'remote store'],
])('resume says how, %s', async (resumed, words) => {
  const routes = { [`POST ${BASE}/resume`]: { session: SESSION, resumed } }
  expect((await run(['session', 'resume', SESSION.id], routes)).stdout).toContain(words)
})

test('resume says how in JSON beside the session, as the API does', async () => {
  const reply = { session: SESSION, resumed: 'warm' }
  const routes = { [`POST ${BASE}/resume`]: reply }
  const { stdout } = await run(['session', 'resume', SESSION.id, '--json'], routes)
  expect(JSON.parse(stdout)).toEqual(reply)
})

test('fork prints the id of the new session alone, so that scripts can take it', async () => {
  const routes = { [`POST ${BASE}/fork`]: { session: FORK } }
  const result = await run(['session', 'fork', SESSION.id, '--checkpoint', CHECKPOINT.id], routes, 201)
  expect(result).toMatchObject({ code: 0, stdout: `${FORK.id}\n` })
  expect(api?.requests[0]?.json).toEqual({ checkpointId: CHECKPOINT.id })
})

test('rollback names the checkpoint', async () => {
  const routes = { [`POST ${BASE}/rollback`]: { session: PAUSED } }
  const result = await run(['session', 'rollback', SESSION.id, CHECKPOINT.id], routes)
  expect(result).toMatchObject({ code: 0, stdout: `✓ ${SESSION.id} is paused\n` })
  expect(api?.requests[0]?.json).toEqual({ checkpointId: CHECKPOINT.id })
})

test('list and show tell the state of the sandbox and where a fork comes from', async () => {
  const list = await run(['session', 'list'], { 'GET /api/sessions': { sessions: [FORK, SESSION] } })
  const [header, fork, other] = list.stdout.split('\n')
  expect(header).toMatch(/^ID +AGENT OR TEMPLATE +STATUS +SANDBOX +LAST ACTIVE +FORK OF$/)
  expect(fork).toMatch(new RegExp(`^${FORK.id}  helper v1 +paused  cold .* ${SESSION.id}$`))
  expect(other).toMatch(new RegExp(`^${SESSION.id}  helper v1 +active  waiting .*Z$`))
  await api?.close()
  const checkpoints = { every: 'pause', keep: 3, keepDays: 2 }
  const shown = { ...FORK, checkpointId: CHECKPOINT.id, checkpoints, autoResume: false }
  const show = await run(['session', 'show', FORK.id], {
    [`GET /api/sessions/${FORK.id}`]: { session: shown },
  })
  expect(show.stdout).toMatch(/Sandbox +cold\n/)
  expect(show.stdout).toContain(`Fork of      ${SESSION.id}\n`)
  expect(show.stdout).toContain(`Checkpoint   ${CHECKPOINT.id}\n`)
  expect(show.stdout).toContain(
    'when it pauses, newest 3 kept, kept for 2 days\n  Resumes      only when asked\n',
  )
})

test('create sets when a session is saved, what is kept and whether it resumes by itself', async () => {
  const routes = { 'POST /api/sessions': { session: SESSION } }
  const create = ['session', 'create', 'helper']
  const flags = ['--checkpoint-every', 'pause', '--keep', '3', '--keep-days', '2', '--no-auto-resume']
  await run([...create, ...flags], routes)
  const checkpoints = { every: 'pause', keep: 3, keepDays: 2 }
  expect(api?.requests[0]?.json).toEqual({ agent: 'helper', env: {}, checkpoints, autoResume: false })
  await api?.close()
  await run(create, routes)
  expect(api?.requests[0]?.json).toEqual({ agent: 'helper', env: {} })
})

test('checkpoints are listed, newest first, with the one the session stands on', async () => {
  const older = { ...CHECKPOINT, id: 'older', isCurrent: false, reason: 'pause' }
  const routes = { [`GET ${BASE}/checkpoints`]: { checkpoints: [CHECKPOINT, older], nextCursor: 'n' } }
  const result = await run(['session', 'checkpoints', SESSION.id], routes)
  const [header, first, second] = result.stdout.split('\n')
  expect(header).toMatch(/^ID +SEQ +REASON +FILES +BYTES +CREATED$/)
  expect(first).toMatch(new RegExp(`^${CHECKPOINT.id} \\*  12   turn    1      2048   2026-01-02`))
  expect(second).toMatch(/^older +12 +pause/)
  expect(result.stderr).toContain('--cursor n')
})

test('a session without checkpoints says how to make one', async () => {
  const routes = { [`GET ${BASE}/checkpoints`]: { checkpoints: [] } }
  const result = await run(['session', 'checkpoints', SESSION.id], routes)
  expect(result).toMatchObject({ code: 0, stdout: '' })
  expect(result.stderr).toContain(`ash session checkpoint ${SESSION.id}`)
})

test('checkpoint prints the id alone, and delete deletes it', async () => {
  const path = `${BASE}/checkpoints`
  const routes = { [`POST ${path}`]: { checkpoint: CHECKPOINT }, [`DELETE ${path}/x`]: { ok: true } }
  const made = await run(['session', 'checkpoint', SESSION.id], routes, 201)
  expect(made).toEqual({ code: 0, stdout: `${CHECKPOINT.id}\n`, stderr: '1 file, 2.0 KB\n' })
  await api?.close()
  const deleted = await run(['session', 'checkpoints', 'delete', SESSION.id, 'x', '--json'], routes)
  expect(JSON.parse(deleted.stdout)).toEqual({ deleted: 'x' })
})

const DIFF = {
  from: 'a',
  to: 'b',
  added: [
    { path: 'b\x1b[31m', type: 'file', size: 1 },
    { path: 'dir', type: 'directory', size: 0 },
  ],
  changed: [{ path: 'c', type: 'file', size: 1 }],
  removed: [{ path: 'a', type: 'link', size: 1 }],
  truncated: true,
  turns: [{ turnId: 't', seq: 3 }],
}

test('diff shows each path with what happened to it, its name harmless', async () => {
  const routes = { [`GET ${BASE}/checkpoints/diff?from=a&to=b&limit=4`]: { diff: DIFF } }
  const result = await run(['session', 'diff', SESSION.id, 'a', 'b', '--limit', '4'], routes)
  expect(result).toEqual({
    code: 0,
    stdout: '- a\n+ b\\x1b[31m\n~ c\n+ dir/\n2 added, 1 changed, 1 removed; 1 turn between\n',
    stderr: 'There are more: raise --limit\n',
  })
})

test('diff compares with where the session stands, if nothing else is named', async () => {
  const current = { ...SESSION, checkpointId: 'b' }
  const routes = {
    [`GET ${BASE}`]: { session: current },
    [`GET ${BASE}/checkpoints/diff?from=a&to=b`]: { diff: DIFF },
  }
  const result = await run(['session', 'diff', SESSION.id, 'a', '--json'], routes)
  expect(JSON.parse(result.stdout)).toEqual({ diff: DIFF })
  await api?.close()
  const none = await run(['session', 'diff', SESSION.id, 'a'], { [`GET ${BASE}`]: { session: SESSION } })
  expect(none).toMatchObject({ code: 5, stdout: '' })
  expect(none.stderr).toContain(`next: Make one: ash session checkpoint ${SESSION.id}`)
})

test('files are shown as a checkpoint has them, and as such', async () => {
  const listing = { files: [{ path: 'a', type: 'file', size: 1, modifiedAt: 'now' }], truncated: false }
  const routes = {
    [`GET ${BASE}/files?checkpointId=c`]: { ...listing, source: 'checkpoint' },
    [`GET ${BASE}/files`]: { ...listing, source: 'checkpoint' },
    [`GET ${BASE}/files/a?format=json&checkpointId=c`]: { path: 'a', content: 'then', size: 4 },
  }
  const asked = await run(['session', 'files', SESSION.id, '--checkpoint', 'c'], routes)
  expect(asked).toMatchObject({ code: 0, stderr: '' })
  await api?.close()
  const missing = await run(['session', 'files', SESSION.id], routes)
  expect(missing.stderr).toContain('Read from a checkpoint')
  await api?.close()
  const read = await run(['session', 'files', 'read', SESSION.id, 'a', '--checkpoint', 'c', '--json'], routes)
  expect(JSON.parse(read.stdout)).toEqual({ path: 'a', content: 'then' })
})

test('gc tells what it deleted, or with --dry-run what it would', async () => {
  const report = {
    dryRun: true,
    local: { blobs: 1, bytes: 10 },
    remote: { blobs: 2, bytes: 3 * 1024 ** 3 },
    kept: { blobs: 3, bytes: 0 },
  }
  const dry = await run(['gc', '--dry-run'], { 'POST /api/gc': report })
  expect(api?.requests[0]?.json).toEqual({ dryRun: true })
  expect(dry.stdout.split('\n')).toEqual([
    '✓ Would delete 1 blob, 10 bytes of this host',
    '  Would delete 2 blobs, 3.0 GB of the remote store',
    '  In use: 3 blobs, 0 bytes',
    '',
  ])
  await api?.close()
  const { remote: _, ...local } = { ...report, dryRun: false }
  const swept = await run(['gc'], { 'POST /api/gc': local })
  expect(api?.requests[0]?.json).toEqual({ dryRun: false })
  expect(swept.stdout).toContain('✓ Deleted 1 blob')
  expect(swept.stdout).not.toContain('remote')
})
