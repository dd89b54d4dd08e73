import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { beginRun, EXECUTION, endRun, sendRun, type Written } from '../testing/executions.ts'
import {
  type Api,
  type CliResult,
  errorBody,
  runCli,
  SESSION,
  sendJson,
  startApi,
} from '../testing/run-cli.ts'

const SESSION_PATH = `/api/sessions/${SESSION.id}`
const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

let api: Api
async function serve(routes: Parameters<typeof startApi>[0]): Promise<Record<string, string>> {
  api = await startApi(routes)
  closers.push(() => api.close())
  return { ASH_SERVER_URL: api.url }
}

function tempDir(): string {
  const dir = mkdtempSync(join(tmpdir(), 'ash-run-'))
  closers.push(() => rmSync(dir, { recursive: true }))
  return dir
}

function file(name: string, content: string): string {
  const path = join(tempDir(), name)
  writeFileSync(path, content)
  return path
}

/** Runs a command whose code, once, has this outcome. */
async function run(args: string[], written: Written[] = [], outcome: object = {}): Promise<CliResult> {
  const env = await serve({ 'POST /api/execute': (response) => sendRun(response, written, outcome) })
  return await runCli(['run', ...args], { env })
}

describe('the code', () => {
  test.each([
    ['a.py', 'python'],
    ['a.js', 'javascript'],
    ['a.MJS', 'javascript'],
    ['a.sh', 'shell'],
  ])('%s is %s by its name', async (name, language) => {
    await run([file(name, 'print(1)')])
    expect(api.requests[0]?.json).toEqual({ code: 'print(1)', language })
  })

  test('may be given, or come by stdin', async () => {
    await run(['-c', '6 * 7', '--template', 'science'])
    expect(api.requests[0]?.json).toEqual({ code: '6 * 7', template: 'science' })
    const env = await serve({ 'POST /api/execute': (response) => sendRun(response, []) })
    await runCli(['run', '-', '--language', 'shell'], { env, input: 'echo hi\n' })
    expect(api.requests[0]?.json).toEqual({ code: 'echo hi\n', language: 'shell' })
  })

  test('has its variables, time and packages', async () => {
    const options = ['--env', 'A=1', '--timeout', '1.5s', '--package', 'pip:numpy>=2', '--package', 'npm:x']
    await run(['-c', 'x', ...options])
    expect(api.requests[0]?.json).toEqual({
      code: 'x',
      env: { A: '1' },
      timeout: 1500,
      packages: { pip: ['numpy>=2'], npm: ['x'] },
    })
  })

  test('with an event is a handler', async () => {
    const result = await run(['-c', 'h', '--event', '{"a":1}'], [], {
      kind: 'handler',
      result: { sum: [1, 2] },
      hasResult: true,
    })
    expect(api.requests[0]?.json).toEqual({ handler: 'h', event: { a: 1 } })
    expect(result).toMatchObject({ code: 0, stdout: '{\n  "sum": [\n    1,\n    2\n  ]\n}\n', stderr: '' })
    await run(['-c', 'h', '--event-file', file('event.json', '{"b":2}')])
    expect(api.requests[0]?.json).toEqual({ handler: 'h', event: { b: 2 } })
    await run(['-c', 'h', '--handler'])
    expect(api.requests[0]?.json).toEqual({ handler: 'h' })
  })

  test.each([
    [[]],
    [['a.txt']],
    [['/nonexistent.py']],
    [['-c', ' ']],
    [['-c', 'x', 'a.py']],
    [['-c', 'x', '--event', '[1]']],
    [['-c', 'x', '--event', '{']],
    [['-c', 'x', '--timeout', '2h']],
    [['-c', 'x', '--timeout', 'soon']],
    [['-c', 'x', '--package', 'numpy']],
    [['-c', 'x', '--kernel', 'a']],
    [['-c', 'x', '--session', SESSION.id, '--template', 'python']],
  ])('wrong usage %j is 2 and says what to do', async (args) => {
    const result = await runCli(['run', ...args])
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(result.stderr).toMatch(/^error: .*\n(\(.*\)\n)?\s*next: /)
  })
})

describe('what it does', () => {
  test('goes to the same streams, exactly, and then comes the result on a line of its own', async () => {
    const written: Written[] = [
      ['stdout', 'a\x1b[31m'],
      ['stderr', 'warning\n'],
      ['stdout', 'b'],
    ]
    const value = { isValue: true, data: { 'text/plain': '42' } }
    const result = await run(['-c', 'x'], written, { result: 42, hasResult: true, results: [value] })
    expect(result).toEqual({ code: 0, stdout: 'a\x1b[31mb\n42\n', stderr: 'warning\n' })
  })

  test('is shown at the end with --no-stream', async () => {
    const result = await run(['-c', 'x', '--no-stream'], [['stdout', 'out\n']])
    expect(result).toEqual({ code: 0, stdout: 'out\n', stderr: '' })
  })

  test('has rich results as text where they have one', async () => {
    const results = [
      { isValue: false, data: { 'text/plain': 'a table', 'text/html': '<table>' } },
      { isValue: true, data: { 'text/plain': '<Thing>' } },
    ]
    expect((await run(['-c', 'x'], [], { results })).stdout).toBe('a table\n<Thing>\n')
  })

  test('is one document with --json, with --stream every event', async () => {
    const one = await run(['-c', 'x', '--json'], [['stdout', 'out\n']], { status: 'failed' })
    expect(one).toMatchObject({ code: 1, stderr: '' })
    expect(JSON.parse(one.stdout)).toEqual({
      execution: { ...EXECUTION, stdout: 'out\n', status: 'failed' },
    })
    const all = await run(['-c', 'x', '--json', '--stream'], [['stdout', 'out\n']])
    const types = all.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).type)
    expect(types).toEqual(['execution', 'output', 'execution', 'result'])
  })

  test.each([
    ['timeout', {}, 124, 'longer than 300 s'],
    ['crashed', { error: { name: 'sandbox_died', message: 'gone' } }, 70, 'gone'],
  ])('%s is told in two lines', async (status, more, code, what) => {
    const result = await run(['-c', 'x'], [], { status, ...more })
    expect(result.code).toBe(code)
    expect(result.stderr).toMatch(/^error: .*\n {2}next: /)
    expect(result.stderr).toContain(what)
  })

  test('that raised shows the traceback, once', async () => {
    const error = { name: 'ValueError', message: 'no', traceback: 'Traceback …\nValueError: no\n' }
    const result = await run(['-c', 'x'], [], { status: 'failed', error })
    expect(result).toMatchObject({ code: 1, stdout: '', stderr: error.traceback })
    const shown = await run(['-c', 'x'], [['stderr', error.traceback]], { status: 'failed', error })
    expect(shown.stderr).toBe(error.traceback)
  })

  test('that a server refuses is told in two lines', async () => {
    const env = await serve({
      'POST /api/execute': (response) =>
        sendJson(response, 422, errorBody('interpreter_missing', 422, 'No javascript here')),
    })
    const result = await runCli(['run', '-c', 'x'], { env })
    expect(result).toMatchObject({ code: 1, stdout: '' })
    expect(result.stderr).toMatch(/^error: No javascript here\n {2}next: .*ash template list/)
  })

  test('is cancelled by Ctrl-C, and ends with 130', async () => {
    let finish = () => {}
    const env = await serve({
      'POST /api/execute': (response) => {
        beginRun(response, [['stdout', 'Working\n']])
        finish = () => endRun(response, { status: 'cancelled', stdout: 'Working\n' })
      },
      [`DELETE ${SESSION_PATH}/executions/${EXECUTION.id}`]: (response) => {
        sendJson(response, 200, { execution: { ...EXECUTION, status: 'cancelled' } })
        finish()
      },
    })
    let isPressed = false
    const onOutput = (stdout: string, kill: (signal: NodeJS.Signals) => void) => {
      if (!isPressed && stdout.includes('Working')) kill('SIGINT')
      isPressed = true
    }
    const result = await runCli(['run', '-c', 'x'], { env, onOutput })
    expect(result).toMatchObject({ code: 130, stdout: 'Working\n' })
    expect(result.stderr).toContain('Cancelled')
    expect(api.requests.map(({ method }) => method)).toEqual(['POST', 'DELETE'])
  })
})

describe('files it made', () => {
  const artifacts = [
    { path: 'out/a.bin', size: 2, mimeType: 'application/octet-stream', sha256: 'x', isKept: true },
    { path: 'huge.bin', size: 5_000_000, mimeType: 'application/octet-stream', isKept: false },
  ]
  const results = [{ isValue: false, data: { 'image/png': Buffer.from('PNG').toString('base64') } }]

  test('are named, images too, with how to get them', async () => {
    const result = await run(['-c', 'x'], [], { artifacts, results })
    expect(result).toMatchObject({ code: 0, stdout: '' })
    expect(result.stderr).toContain('file   out/a.bin, 2 bytes\n')
    expect(result.stderr).toContain('huge.bin, 4.8 MB, too large to be kept')
    expect(result.stderr).toContain('image  image/png, 3 bytes\n')
    expect(result.stderr).toContain('--artifacts <dir> saves them')
  })

  test('are saved with --artifacts', async () => {
    const env = await serve({
      'POST /api/execute': (response) => sendRun(response, [], { artifacts, results }),
      [`GET ${SESSION_PATH}/executions/${EXECUTION.id}/artifacts/out/a.bin`]: (response) =>
        response.end(Buffer.of(0xff, 0)),
    })
    const dir = join(tempDir(), 'new')
    const result = await runCli(['run', '-c', 'x', '--artifacts', dir, '--json'], { env })
    expect(result.code).toBe(0)
    const saved = [join(dir, 'result-1.png'), join(dir, 'out/a.bin')]
    expect(JSON.parse(result.stdout).saved).toEqual(saved)
    expect(readFileSync(join(dir, 'result-1.png'), 'utf8')).toBe('PNG')
    expect([...readFileSync(join(dir, 'out/a.bin'))]).toEqual([0xff, 0])
  })

  test('are never written elsewhere, whatever their path says', async () => {
    const evil = { ...artifacts[0], path: '../evil' }
    const dir = join(tempDir(), 'in')
    const result = await run(['-c', 'x', '--artifacts', dir], [], { artifacts: [evil] })
    expect(result.code).toBe(1)
    expect(() => readFileSync(join(dir, '../evil'))).toThrow('ENOENT')
  })
})

describe('a session', () => {
  test('is made by --mode persistent, and told how to go on with', async () => {
    const env = await serve({
      'POST /api/sessions': (response) => sendJson(response, 201, { session: SESSION }),
      [`POST ${SESSION_PATH}/execute`]: (response) => sendRun(response, [['stdout', 'ok\n']]),
    })
    const args = ['run', file('a.mjs', 'x'), '--mode', 'persistent', '--kernel', 'k', '--package', 'npm:x']
    const result = await runCli(args, { env })
    expect(result).toMatchObject({ code: 0, stdout: 'ok\n' })
    expect(result.stderr).toContain(`session ${SESSION.id}\n`)
    expect(result.stderr).toContain(`ash run --session ${SESSION.id} …\n`)
    expect(result.stderr).toContain(`ash session end ${SESSION.id}\n`)
    const [create, execute] = api.requests.map(({ json }) => json)
    expect(create).toEqual({ template: 'node', mode: 'persistent', packages: { npm: ['x'] } })
    expect(execute).toEqual({ code: 'x', language: 'javascript', kernel: 'k' })
  })

  test('that is there is used with --session', async () => {
    const env = await serve({
      [`POST ${SESSION_PATH}/execute`]: (response) => sendRun(response, [['stdout', 'ok\n']]),
    })
    const result = await runCli(['run', '-c', 'x + 1', '--session', SESSION.id], { env })
    expect(result).toEqual({ code: 0, stdout: 'ok\n', stderr: '' })
    expect(api.requests[0]?.json).toEqual({ code: 'x + 1' })
  })

  test('without an agent is created with a template', async () => {
    const env = await serve({
      'POST /api/sessions': (response) => sendJson(response, 201, { session: SESSION }),
    })
    const args = ['session', 'create', '--template', 'python', '--agent-id', 'ada', '--idle-timeout', '10m']
    const result = await runCli(args, { env })
    expect(result).toMatchObject({ code: 0, stdout: `${SESSION.id}\n` })
    expect(result.stderr).toContain(`ash run --session ${SESSION.id}`)
    expect(api.requests[0]?.json).toEqual({
      template: 'python',
      agentId: 'ada',
      idleTimeout: 600_000,
      env: {},
    })
    expect(await runCli(['session', 'create'], { env })).toMatchObject({ code: 2, stdout: '' })
  })
})
