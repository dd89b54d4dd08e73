import { openPty } from '@ash-ai/bridge/pty'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { BARE_ENV, ROOT, runProcess } from './support/run-process.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const PTY_MODULE = `${ROOT}/packages/bridge/dist/pty/pty.node`

let server: TestServer
let sessionId: string
beforeAll(async () => {
  server = await startTestServer()
  sessionId = (await server.client.sessions.create({ template: 'python' })).id
})
afterAll(() => server.close())

describe('ash terminal', () => {
  const access = () => ({
    ...BARE_ENV,
    ASH_SERVER_URL: server.url,
    ASH_API_KEY: server.apiKey,
    HOME: '/nonexistent',
  })

  /** The command in a terminal of its own, as a person would have it. */
  function ash(...args: string[]) {
    const { stream, exited, resize } = openPty(PTY_MODULE, {
      program: process.execPath,
      args: [`${ROOT}/packages/cli/bin/ash.mjs`, 'terminal', ...args],
      cwd: ROOT,
      env: access(),
      cols: 90,
      rows: 30,
    })
    let text = ''
    stream
      .on('error', () => {})
      .on('data', (data: Buffer) => {
        text += data
      })
    onTestFinished(() => void stream.destroy())
    const shows = (part: string) =>
      eventually(
        () => text,
        (seen) => seen.includes(part),
        20_000,
      )
    return { type: (keys: string) => stream.write(keys), shows, exited, resize }
  }

  test('passes keys, sizes and the exit code on', async () => {
    const { type, shows, exited, resize } = ash(sessionId)
    type('stty size\r')
    await shows('30 90')
    resize({ cols: 100, rows: 40 })
    await eventually(
      () => server.client.terminals.list(sessionId),
      (open) => open.some(({ cols, rows }) => cols === 100 && rows === 40),
    )
    type("sh -c 'echo be''gun; exec sleep 1000'\r")
    await shows('begun')
    type('\x03')
    type('exit 42\r')
    expect(await exited).toEqual({ code: 42, signal: null })
  })

  test('without a terminal says what to do instead', async () => {
    const args = [`${ROOT}/packages/cli/bin/ash.mjs`, 'terminal', sessionId]
    const { code, stderr } = await runProcess(process.execPath, args, { env: access() })
    expect([code, stderr]).toEqual([2, expect.stringContaining('next: Without one: ash exec')])
  })

  test('leaves with ~. and comes back with --id', async () => {
    const first = ash(sessionId)
    first.type('echo kept-$((6))\r')
    await first.shows('kept-6')
    first.type('\r~.')
    expect(await first.exited).toEqual({ code: 0, signal: null })
    const text = await first.shows('--id ')
    const id = /--id ([0-9a-f-]{36})/.exec(text)?.[1] ?? ''
    const again = ash(sessionId, '--id', id)
    await again.shows('kept-6')
    again.type('exit\r')
    expect(await again.exited).toEqual({ code: 0, signal: null })
  })

  test('shows a command that ends at once, and what is open', async () => {
    const once = ash(sessionId, '--command', 'echo only; exit 7')
    await once.shows('only')
    expect(await once.exited).toEqual({ code: 7, signal: null })
    const { id } = await server.client.terminals.create(sessionId, { command: 'sleep 1000' })
    const listed = ash(sessionId, '--list')
    await listed.shows(id)
    expect(await listed.exited).toEqual({ code: 0, signal: null })
    const closed = ash(sessionId, '--close', id)
    expect(await closed.exited).toEqual({ code: 0, signal: null })
    const gone = ash(sessionId, '--id', id)
    await gone.shows('error:')
    expect(await gone.exited).toEqual({ code: 5, signal: null })
  })
})
