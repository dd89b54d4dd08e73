import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { EXECUTION } from '../testing/executions.ts'
import { type Api, type CliResult, runCli, SESSION, sendJson, startApi } from '../testing/run-cli.ts'

const BASE = `/api/sessions/${SESSION.id}`
const KERNEL = {
  name: 'default',
  language: 'python',
  state: 'idle',
  waiting: 0,
  runs: 3,
  startedAt: '2026-01-01T00:00:00.000Z',
  lastUsedAt: '2026-01-02T00:00:00.000Z',
}
const TEMPLATE = { name: 'science', languages: ['python', 'shell'], env: { A: '***' }, isBuiltIn: false }
const CODE_SESSION = { ...SESSION, agentName: undefined, agentVersion: undefined, template: 'python' }

let api: Api | undefined
afterEach(() => api?.close())

async function run(args: string[], replies: Record<string, unknown>): Promise<CliResult> {
  await api?.close()
  api = await startApi(
    Object.fromEntries(
      Object.entries(replies).map(([route, body]) => [route, (response) => sendJson(response, 200, body)]),
    ),
  )
  return await runCli([...args, '--url', api.url])
}

test('exec is session exec; several words stay words', async () => {
  const reply = { exitCode: 0, signal: null, stdout: 'ok\n', stderr: '', truncated: false, timedOut: false }
  const routes = { [`POST ${BASE}/exec`]: reply }
  const line = await run(['exec', SESSION.id, 'ls | wc -l'], routes)
  expect(line).toEqual({ code: 0, stdout: 'ok\n', stderr: '' })
  expect(api?.requests[0]?.json).toEqual({ command: 'ls | wc -l' })
  const words = ['--', 'echo', "it's", '-n', '$HOME']
  const env = { ASH_SERVER_URL: api?.url }
  await runCli(['session', 'exec', SESSION.id, '--timeout', '2', ...words], { env })
  expect(api?.requests[1]?.json).toEqual({ command: `echo 'it'\\''s' -n '$HOME'`, timeout: 2000 })
})

test('execution list, show and cancel', async () => {
  const { stdout: _, ...summary } = { ...EXECUTION, kernel: 'default', metrics: { wallMs: 1234, cpuMs: 2 } }
  const list = await run(['execution', 'list', SESSION.id, '--status', 'completed'], {
    [`GET ${BASE}/executions?status=completed`]: { executions: [summary] },
  })
  expect(list.stdout).toMatch(new RegExp(`\\n${EXECUTION.id}  completed  python +default  1\\.234 s  2026`))
  const failed = { ...EXECUTION, status: 'failed', stdout: 'out\n', error: { name: 'E', message: 'no' } }
  const show = await run(['execution', 'show', SESSION.id, EXECUTION.id], {
    [`GET ${BASE}/executions/${EXECUTION.id}`]: { execution: failed },
  })
  expect(show).toMatchObject({ code: 0, stdout: 'out\n' })
  expect(show.stderr).toMatch(/failed\n.*Ran as +python script\n.*E: no\n/s)
  const cancel = await run(['execution', 'cancel', SESSION.id, EXECUTION.id], {
    [`DELETE ${BASE}/executions/${EXECUTION.id}`]: { execution: { ...EXECUTION, status: 'cancelled' } },
  })
  expect(cancel.stdout).toBe(`✓ ${EXECUTION.id} is cancelled\n`)
})

test('kernel list, restart, interrupt and delete', async () => {
  const list = await run(['kernel', 'list', SESSION.id], { [`GET ${BASE}/kernels`]: { kernels: [KERNEL] } })
  expect(list.stdout).toMatch(/\ndefault {2}python +idle +0 +3 /)
  const restart = await run(['kernel', 'restart', SESSION.id], {
    [`POST ${BASE}/kernels/python/default/restart`]: { kernel: KERNEL },
  })
  expect(restart.stdout).toBe('✓ Restarted python kernel default\n')
  const interrupt = await run(['kernel', 'interrupt', SESSION.id, 'a', '--language', 'javascript'], {
    [`POST ${BASE}/kernels/javascript/a/interrupt`]: { ok: true },
  })
  expect(interrupt.stdout).toBe('✓ Interrupted\n')
  const remove = await run(['kernel', 'delete', SESSION.id, 'a'], {
    [`DELETE ${BASE}/kernels/python/a`]: { ok: true },
  })
  expect(remove.stdout).toBe('✓ Deleted kernel a\n')
})

test('template list, show and delete', async () => {
  const list = await run(['template', 'list'], { 'GET /api/templates': { templates: [TEMPLATE] } })
  expect(list.stdout).toMatch(/\nscience {2}python shell/)
  const show = await run(['template', 'show', 'science'], {
    'GET /api/templates/science': { template: TEMPLATE },
  })
  expect(show.stdout).toMatch(/^science\n {2}languages +\["python","shell"\]\n/)
  const remove = await run(['template', 'delete', 'science'], {
    'DELETE /api/templates/science': { ok: true },
  })
  expect(remove.stdout).toBe('✓ Deleted science\n')
})

test('template create takes a file and the options over it', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'ash-template-'))
  const file = join(dir, 'template.json')
  writeFileSync(file, JSON.stringify({ name: 'science', timeout: 1, env: { A: '1' }, limits: { cpus: 1 } }))
  const options = ['--timeout', '60s', '--env', 'B=2', '--allow', 'pypi.org', '--language', 'python']
  const wanted = {
    timeout: 60_000,
    env: { A: '1', B: '2' },
    limits: { cpus: 1 },
    network: ['pypi.org'],
    languages: ['python'],
  }
  const created = await run(['template', 'create', '--file', file, ...options], {
    'POST /api/templates': { template: TEMPLATE },
  })
  expect(created).toMatchObject({ code: 0 })
  expect(created.stdout).toContain('✓ Created science for python, shell\n')
  expect(api?.requests[0]?.json).toEqual({ ...wanted, name: 'science' })
  await run(['template', 'create', 'other', '--file', file, ...options, '--replace'], {
    'PUT /api/templates/other': { template: TEMPLATE },
  })
  expect(api?.requests[0]?.json).toEqual(wanted)
  rmSync(dir, { recursive: true })
  const missing = await run(['template', 'create', '--file', file], {})
  expect(missing).toMatchObject({ code: 2, stdout: '' })
})

test('sessions without an agent are listed and shown by their template, and not talked to', async () => {
  const list = await run(['session', 'list', '--template', 'python'], {
    'GET /api/sessions?template=python': { sessions: [CODE_SESSION] },
  })
  expect(list.stdout).toMatch(new RegExp(`\\n${SESSION.id}  python +active`))
  const shown = { ...CODE_SESSION, mode: 'persistent', agentId: 'ada', languages: ['python', 'shell'] }
  const show = await run(['session', 'show', SESSION.id], { [`GET ${BASE}`]: { session: shown } })
  expect(show.stdout).toMatch(
    /Template +python\n +Mode +persistent\n +For +ada\n +Languages +python, shell\n/,
  )
  expect(show.stdout).not.toContain('Agent')
  const chat = await run(['chat', 'helper', 'hi', '--session', SESSION.id], {
    [`GET ${BASE}`]: { session: shown },
  })
  expect(chat).toMatchObject({ code: 2, stdout: '' })
  expect(chat.stderr).toContain('has no agent')
})
