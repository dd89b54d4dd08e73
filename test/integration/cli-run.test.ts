import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Execution, ExecutionSummary, Kernel, Session, Template } from '@ash-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { BARE_ENV, type ProcessResult, ROOT, runProcess } from './support/run-process.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const BIN = join(ROOT, 'packages/cli/bin/ash.mjs')
const FOREVER = 'print("begun", flush=True)\nwhile True: pass'

let server: TestServer
let dir: string
beforeAll(async () => {
  server = await startTestServer()
  dir = await mkdtemp(join(tmpdir(), 'ash-cli-run-'))
})
afterAll(async () => {
  await server.close()
  await rm(dir, { recursive: true, force: true })
})

const access = () => ({ ASH_SERVER_URL: server.url, ASH_API_KEY: server.apiKey })
const ash = (args: string[], input = '') =>
  runProcess(process.execPath, [BIN, ...args], { env: access(), input })

async function ashJson<Document>(...args: string[]): Promise<Document> {
  const { code, stdout, stderr } = await ash([...args, '--json'])
  expect([code, stderr]).toEqual([0, expect.not.stringContaining('error:')])
  return JSON.parse(stdout) as Document
}

async function file(name: string, content: string): Promise<string> {
  const path = join(dir, name)
  await writeFile(path, content)
  return path
}

/** Presses Ctrl-C as soon as the code has begun. */
async function interrupted(args: string[]): Promise<ProcessResult> {
  const child = spawn(process.execPath, [BIN, ...args], { cwd: ROOT, env: { ...BARE_ENV, ...access() } })
  const result = { stdout: '', stderr: '' }
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    result.stderr += text
  })
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const hadBegun = result.stdout.includes('begun')
    result.stdout += text
    if (!hadBegun && result.stdout.includes('begun')) child.kill('SIGINT')
  })
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, ...result }
}

describe('ash run', () => {
  test('runs a file: its output, then the value of its last expression', async () => {
    const path = await file(
      'sum.py',
      'import sys\nprint("out")\nprint("err", file=sys.stderr)\n[6 * 7, None]\n',
    )
    const result = await ash(['run', path])
    expect(result).toEqual({ code: 0, stdout: 'out\n[\n  42,\n  null\n]\n', stderr: 'err\n' })
  })

  test('calls a handler with its event, in Python and in JavaScript', async () => {
    const python = await file(
      'handler.py',
      'def handler(event, context):\n  return {"name": event["name"]}\n',
    )
    const { execution } = await ashJson<{ execution: Execution }>('run', python, '--event', '{"name":"Ada"}')
    expect(execution).toMatchObject({ status: 'completed', kind: 'handler', result: { name: 'Ada' } })
    const script = await file('handler.mjs', 'export const handler = async (event) => event.list.length\n')
    const event = await file('event.json', '{"list": [1, 2, 3]}')
    expect(await ash(['run', script, '--event-file', event])).toEqual({ code: 0, stdout: '3\n', stderr: '' })
  })

  test('takes code from stdin and variables from here, and ends with its exit code', async () => {
    const args = ['run', '-', '--language', 'shell', '--env', 'COLOUR=teal']
    const result = await ash(args, 'echo "in $COLOUR"; exit 3\n')
    expect(result).toMatchObject({ code: 3, stdout: 'in teal\n' })
  })

  test('shows why code failed, and ends with 1', async () => {
    const result = await ash(['run', '-c', 'print("before")\n1 / 0'])
    expect(result).toMatchObject({ code: 1, stdout: 'before\n' })
    expect(result.stderr).toMatch(/Traceback.*ZeroDivisionError: division by zero/s)
  })

  test('keeps what code wrote until its time was over, and ends with 124', async () => {
    const result = await ash(['run', '-c', FOREVER, '--timeout', '1s'])
    expect(result).toMatchObject({ code: 124, stdout: 'begun\n' })
    expect(result.stderr).toMatch(/error: The code ran longer than 1 s .*\n {2}next: .*--timeout/)
  })

  test('saves the files that code made', async () => {
    const code = 'import os\nos.mkdir("out")\nopen("out/table.csv", "w").write("a,b\\n")\nNone'
    const target = join(dir, 'saved')
    const result = await ash(['run', '-c', code, '--artifacts', target])
    expect(result).toMatchObject({ code: 0, stdout: '' })
    expect(result.stderr).toContain('out/table.csv, 4 bytes')
    expect(await readFile(join(target, 'out/table.csv'), 'utf8')).toBe('a,b\n')
  })

  test('cancels the code on Ctrl-C, and its session ends', async () => {
    const { code, stdout } = await interrupted(['run', '-c', FOREVER, '--json', '--stream'])
    expect(code).toBe(130)
    const last: { execution: Execution } = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '')
    expect(last.execution).toMatchObject({ status: 'cancelled', stdout: 'begun\n' })
    const session = () => server.client.sessions.get(last.execution.sessionId)
    await eventually(session, ({ status }) => status === 'ended')
  })
})

describe('a session that stays', () => {
  let id: string
  beforeAll(async () => {
    const result = await ash(['run', '-c', 'x = 41', '--mode', 'persistent'])
    expect(result).toMatchObject({ code: 0, stdout: '' })
    id = /session ([0-9a-f-]{36})\n/.exec(result.stderr)?.[1] ?? ''
  })
  const inSession = (code: string, ...more: string[]) => ['run', '-c', code, '--session', id, ...more]

  test('keeps its variables, in each kernel its own', async () => {
    expect(await ash(inSession('x + 1'))).toEqual({ code: 0, stdout: '42\n', stderr: '' })
    expect(await ash(inSession('x', '--kernel', 'other'))).toMatchObject({ code: 1 })
    const { kernels } = await ashJson<{ kernels: Kernel[] }>('kernel', 'list', id)
    expect(kernels.map(({ name }) => name).sort()).toEqual(['default', 'other'])
    expect((await ash(['kernel', 'delete', id, 'other'])).code).toBe(0)
  })

  test('keeps them over Ctrl-C, and loses them with a restart', async () => {
    expect(await interrupted(inSession(FOREVER))).toMatchObject({ code: 130, stdout: 'begun\n' })
    expect(await ash(inSession('x'))).toMatchObject({ code: 0, stdout: '41\n' })
    expect(await ash(['kernel', 'restart', id])).toMatchObject({ code: 0 })
    expect(await ash(inSession('x'))).toMatchObject({ code: 1, stderr: expect.stringContaining('NameError') })
  })

  test('lists what was run in it, and shows each', async () => {
    const { executions } = await ashJson<{ executions: ExecutionSummary[] }>('execution', 'list', id)
    const cancelled = executions.find(({ status }) => status === 'cancelled')
    expect(await ash(['execution', 'show', id, cancelled?.id ?? ''])).toMatchObject({
      code: 0,
      stdout: 'begun\n',
      stderr: expect.stringContaining('cancelled'),
    })
    const again = await ash(['execution', 'cancel', id, cancelled?.id ?? ''])
    expect(again).toMatchObject({ code: 1, stdout: '' })
    expect(again.stderr).toMatch(/error: .*\n {2}next: .*ash execution show/)
  })

  test('runs commands, word for word', async () => {
    expect(await ash(['exec', id, 'echo $((1 + 1)) | cat'])).toMatchObject({ code: 0, stdout: '2\n' })
    expect(await ash(['exec', id, '--', 'printf', '%s|', "it's", '$HOME', '-n'])).toMatchObject({
      code: 0,
      stdout: "it's|$HOME|-n|",
    })
  })

  test('is listed with its template and has no agent to talk to', async () => {
    expect((await ash(['session', 'list', '--template', 'python'])).stdout).toMatch(
      new RegExp(`${id} +python +active`),
    )
    const sent = await ash(['session', 'send', id, 'hello'])
    expect(sent).toMatchObject({ code: 1, stdout: '' })
    expect(sent.stderr).toMatch(/error: .*\n {2}next: .*ash run --session/)
    expect(await ash(['session', 'end', id])).toMatchObject({ code: 0 })
  })
})

describe('templates', () => {
  test('are created, used, and deleted when nothing uses them', async () => {
    const created = await ash(['template', 'create', 'blue', '--language', 'shell', '--env', 'COLOUR=blue'])
    expect(created).toMatchObject({ code: 0 })
    const { template } = await ashJson<{ template: Template }>('template', 'show', 'blue')
    expect(template).toMatchObject({ name: 'blue', languages: ['shell'], env: { COLOUR: '***' } })
    expect(await ash(['run', '-c', 'echo $COLOUR', '--template', 'blue'])).toMatchObject({ stdout: 'blue\n' })
    const args = ['session', 'create', '--template', 'blue', '--agent-id', 'ada']
    const { session } = await ashJson<{ session: Session }>(...args)
    expect((await ashJson<{ session: Session }>(...args)).session.id).toBe(session.id)
    const refused = await ash(['template', 'delete', 'blue'])
    expect(refused).toMatchObject({ code: 1, stdout: '' })
    await ash(['session', 'end', session.id])
    expect(await ash(['template', 'delete', 'blue'])).toMatchObject({ code: 0, stdout: '✓ Deleted blue\n' })
  })

  test('that are built in are listed and stay', async () => {
    const { templates } = await ashJson<{ templates: Template[] }>('template', 'list')
    expect(templates.filter(({ isBuiltIn }) => isBuiltIn).map(({ name }) => name)).toEqual([
      'node',
      'python',
      'shell',
    ])
    expect(await ash(['template', 'delete', 'python'])).toMatchObject({ code: 1 })
    const missing = await ash(['run', '-c', '1', '--template', 'nothing'])
    expect(missing).toMatchObject({ code: 5, stdout: '' })
    expect(missing.stderr).toMatch(/error: .*\n {2}next: .*ash template list/)
  })
})
