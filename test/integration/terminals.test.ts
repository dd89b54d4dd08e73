import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import type { TerminalOpenOptions } from '@ash-ai/sdk'
import { MAX_TERMINALS } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { addTenant } from './support/pool-view.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'
import { askForTerminal, Screen } from './support/viewers.ts'

let server: TestServer
let sessionId: string
beforeAll(async () => {
  server = await startTestServer()
  sessionId = (await server.client.sessions.create({ template: 'python' })).id
})
afterAll(() => server.close())

async function open(options: TerminalOpenOptions = {}, id = sessionId): Promise<Screen> {
  const screen = new Screen(await server.client.terminals.open(id, options))
  onTestFinished(async () => {
    screen.connection.close()
    await server.client.terminals.delete(id, screen.connection.id).catch(() => {})
  })
  return screen
}

const TELL_SIZES = `import os, signal
signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size(), flush=True))
print('set', flush=True)
while True: signal.pause()
`

const withKey = () => ({ headers: { authorization: `Bearer ${server.apiKey}` } })

describe('a terminal', () => {
  test('is a shell that knows its size, and its end comes with its exit code', async () => {
    const screen = await open({ cols: 101, rows: 33 })
    screen.type('stty size; tty; id -u; echo a$((1+1))b\r')
    await screen.shows(/33 101\r\n\/dev\/pts\/\d+\r\n1000\r\na2b/)
    screen.type('exit 3\r')
    expect(await screen.connection.ended).toEqual({ reason: 'exited', code: 3, signal: null })
    await eventually(
      () => server.client.terminals.list(sessionId),
      (open) => open.length === 0,
    )
  })

  test('gives a program the descriptors that any command has, and a program that ends at once is seen', async () => {
    const command = 'ls /proc/self/fd | tr "\\n" " "'
    const { stdout } = await server.client.sessions.exec(sessionId, { command })
    const screen = await open({ command })
    expect(await screen.connection.ended).toMatchObject({ reason: 'exited', code: 0 })
    expect(screen.text).toBe(stdout)
  })

  test('tells a program of a new size, and every viewer too', async () => {
    const first = await open({ cols: 80, rows: 24 })
    const second = await open({ id: first.connection.id })
    const sizes: unknown[] = []
    second.connection.onResize((size) => sizes.push(size))
    await server.client.files.write(sessionId, 'sizes.py', TELL_SIZES)
    first.type('python3 sizes.py\r')
    await first.shows('set\r\n')
    first.connection.resize({ cols: 132, rows: 50 })
    await first.shows('columns=132, lines=50')
    await eventually(
      () => sizes.at(-1),
      (size) => JSON.stringify(size) === '{"cols":132,"rows":50}',
    )
  })

  test('shows a full-screen program, which draws anew when the size changes', async () => {
    const screen = await open({ cols: 80, rows: 24, command: 'seq 500 > /tmp/n; LESS= less /tmp/n' })
    await screen.shows('\n23\r\n')
    screen.forget()
    screen.connection.resize({ cols: 80, rows: 40 })
    await screen.shows('\n39\r\n')
    screen.type('q')
    expect(await screen.connection.ended).toMatchObject({ reason: 'exited', code: 0 })
  })

  test('that is closed takes along what was started in it', async () => {
    const screen = await open()
    screen.type('(setsid env -i sleep 4242 &) ; sleep 4243 & echo begun\r')
    await screen.shows('\nbegun')
    const sleepers = async () =>
      (await server.listSandboxProcesses()).filter(({ command }) => /sleep 424[23]/.test(command)).length
    await eventually(sleepers, (count) => count === 2)
    await server.client.terminals.delete(sessionId, screen.connection.id)
    expect(await screen.connection.ended).toMatchObject({ reason: 'exited' })
    await eventually(sleepers, (count) => count === 0)
  })
})

describe('viewers', () => {
  test('of one terminal see the same', async () => {
    const first = await open()
    const second = await open({ id: first.connection.id })
    await eventually(
      () => server.client.terminals.list(sessionId),
      ([terminal]) => terminal?.viewers === 2,
    )
    first.type('echo from-$((1))\r')
    await Promise.all([first.shows('from-1'), second.shows('from-1')])
    first.forget()
    second.forget()
    second.type('seq 1000; echo last-$((2))\r')
    const shown = await Promise.all([first.shows('last-2'), second.shows('last-2')])
    expect(shown[0]).toBe(shown[1])
  })

  test('who come back find the screen as it was, and full-screen programs draw it anew', async () => {
    const first = await open()
    const { connection } = first
    first.type('export KEPT=here; echo marker-$((7))\r')
    await first.shows('marker-7')
    connection.close()
    expect(await connection.ended).toEqual({ reason: 'closed' })
    const again = await open({ id: connection.id })
    await again.shows('marker-7')
    again.type('echo $KEPT-$((8)); seq 500 > /tmp/m; LESS= less /tmp/m\r')
    await again.shows('here-8')
    await again.shows('\n23\r\n')
    again.connection.close()
    const third = await open({ id: connection.id, cols: 80, rows: 24 })
    // Once from before, and once because it draws itself anew.
    await eventually(
      () => third.text.split('\n23\r\n').length,
      (parts) => parts > 2,
    )
    third.type('q')
  })

  test('who come late to much output see the end of it, from the beginning of a line', async () => {
    const first = await open()
    first.type('seq 200000; echo last-$((3))\r')
    await first.shows('last-3')
    const late = await open({ id: first.connection.id })
    const text = await late.shows('last-3')
    expect(text.length).toBeLessThan(300 * 1024)
    const withoutModes = text
      .split('\x1b[?')
      .map((part) => part.replace(/^\d+[hl]/, ''))
      .join('')
    expect(withoutModes).toMatch(/^\d+\r\n\d+\r\n/)
  })

  test('that send something other than the protocol are sent away', async () => {
    const { token } = await server.client.terminals.token(sessionId)
    const url = `${server.url.replace('http', 'ws')}/api/sessions/${sessionId}/terminal?token=${token}`
    const socket = new WebSocket(url)
    socket.onopen = () => socket.send('{"type":"resize","cols":0,"rows":1}')
    const closed = new Promise<{ code: number }>((resolve) => {
      socket.onclose = resolve
    })
    expect((await closed).code).toBe(1008)
    for (const { id } of await server.client.terminals.list(sessionId))
      await server.client.terminals.delete(sessionId, id)
  })
})

test('a flood stays within bounds, and Ctrl-C still ends it', async () => {
  const screen = await open()
  screen.type("sh -c 'echo be''gun; exec yes'\r")
  await screen.shows('begun\r\ny\r\n')
  const rssMb = async () =>
    Number(/^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${server.pid()}/status`, 'utf8'))?.[1]) / 1024
  const before = await rssMb()
  let [peak, bytes] = [before, 0]
  for (const until = Date.now() + 5_000; Date.now() < until; ) {
    await new Promise((resolve) => setTimeout(resolve, 100)) // Measured for as long as it lasts.
    bytes += screen.text.length
    screen.forget()
    peak = Math.max(peak, await rssMb())
  }
  expect(bytes).toBeGreaterThan(4 * 1024 * 1024)
  expect(peak - before).toBeLessThan(32)
  screen.type('\x03')
  screen.type('echo code=$?\r')
  await screen.shows('code=130')
})

test('a viewer that reads nothing holds up nobody else for long, and costs a bounded amount', async () => {
  const screen = await open()
  const { token } = await server.client.terminals.token(sessionId)
  const stuck = await askForTerminal(server, sessionId, { query: { id: screen.connection.id, token } })
  stuck.socket?.pause()
  onTestFinished(() => void stuck.socket?.destroy())
  screen.type('timeout 20 yes\r')
  const isDropped = async () => (await server.client.terminals.list(sessionId))[0]?.viewers === 1
  await eventually(isDropped, (is) => is, 40_000)
  screen.type('\x03')
  screen.type('echo code=$?\r')
  await screen.shows('code=')
})

test('there are only so many terminals', async () => {
  const made = []
  for (let count = 0; count < MAX_TERMINALS; count++)
    made.push(await server.client.terminals.create(sessionId, { command: 'sleep 1000' }))
  await expect(server.client.terminals.create(sessionId)).rejects.toMatchObject({
    code: 'too_many_terminals',
  })
  await Promise.all(made.map(({ id }) => server.client.terminals.delete(sessionId, id)))
  expect(await server.client.terminals.list(sessionId)).toEqual([])
})

describe('who may connect', () => {
  test('whoever has a key, or a token for this session', async () => {
    expect(await askForTerminal(server, sessionId, {})).toMatchObject({ status: 401, code: 'unauthorized' })
    const byKey = await askForTerminal(server, sessionId, withKey())
    expect(byKey.status).toBe(101)
    byKey.socket?.destroy()
    const { token, expiresAt } = await server.client.terminals.token(sessionId)
    expect(new Date(expiresAt).getTime() - Date.now()).toBeLessThanOrEqual(60_000)
    const byToken = await askForTerminal(server, sessionId, { query: { token } })
    expect(byToken.status).toBe(101)
    byToken.socket?.destroy()
    const other = await server.client.sessions.create({ template: 'python' })
    expect(await askForTerminal(server, other.id, { query: { token } })).toMatchObject({ status: 401 })
    expect(await askForTerminal(server, sessionId, { query: { token: `${token}x` } })).toMatchObject({
      status: 401,
    })
    expect(server.log()).not.toContain(token)
    await server.client.sessions.end(other.id)
    for (const { id } of await server.client.terminals.list(sessionId))
      await server.client.terminals.delete(sessionId, id)
  })

  test('no other tenant', async () => {
    const stranger = addTenant(server, 'stranger')
    const terminal = await server.client.terminals.create(sessionId)
    const none = { code: 'session_not_found' }
    await expect(stranger.terminals.list(sessionId)).rejects.toMatchObject(none)
    await expect(stranger.terminals.create(sessionId)).rejects.toMatchObject(none)
    await expect(stranger.terminals.token(sessionId)).rejects.toMatchObject(none)
    await expect(stranger.terminals.delete(sessionId, terminal.id)).rejects.toMatchObject(none)
    await expect(stranger.terminals.open(sessionId, { id: terminal.id })).rejects.toMatchObject(none)
    await server.client.terminals.delete(sessionId, terminal.id)
  })

  test('nobody, to a terminal or session that is not there', async () => {
    const id = crypto.randomUUID()
    await expect(server.client.terminals.open(sessionId, { id })).rejects.toMatchObject({
      code: 'terminal_not_found',
    })
    expect(await askForTerminal(server, sessionId, { ...withKey(), query: { id } })).toMatchObject({
      status: 404,
      code: 'terminal_not_found',
    })
    expect(await askForTerminal(server, id, withKey())).toMatchObject({
      status: 404,
      code: 'session_not_found',
    })
    const plain = await fetch(`${server.url}/api/sessions/${sessionId}/terminal`, withKey())
    expect(plain.status).toBe(426)
  })

  test('a wish to speak something else is ignored everywhere else', async () => {
    const headers = { ...withKey().headers, connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c' }
    const asked = request(`${server.url}/api/templates`, { method: 'POST', headers })
    asked.setHeader('content-type', 'application/json').end('{"name":"upgraded"}')
    const [response] = (await once(asked, 'response')) as [IncomingMessage]
    expect(response.statusCode).toBe(201)
    response.resume()
  })
})

describe('the session', () => {
  test('that is paused sends its viewers away, and has their terminals when it is back', async () => {
    const { id } = await server.client.sessions.create({ template: 'python' })
    const screen = await open({}, id)
    screen.type('echo before-$((1))\r')
    await screen.shows('before-1')
    const startedAt = Date.now()
    await server.client.sessions.pause(id)
    expect(Date.now() - startedAt).toBeLessThan(10_000)
    expect(await screen.connection.ended).toEqual({ reason: 'sessionPaused' })
    const again = await open({ id: screen.connection.id }, id)
    await again.shows('before-1')
    again.type('echo after-$((2))\r')
    await again.shows('after-2')
    await server.client.sessions.end(id)
    expect(await again.connection.ended).toEqual({ reason: 'sessionPaused' })
    expect(await askForTerminal(server, id, withKey())).toMatchObject({ status: 409, code: 'session_ended' })
    await expect(server.client.terminals.open(id)).rejects.toMatchObject({ code: 'session_ended' })
  })

  test('is not given up while somebody looks', async () => {
    const { id } = await server.client.sessions.create({ template: 'python', idleTimeout: 1_000 })
    const screen = await open({}, id)
    const startedAt = Date.now()
    screen.type("sh -c 'sleep 3; echo still-$((5))'\r")
    await screen.shows('still-5')
    expect(Date.now() - startedAt).toBeGreaterThan(2_500)
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'active' })
    screen.connection.close()
    const status = async () => (await server.client.sessions.get(id)).status
    await eventually(status, (now) => now === 'paused')
    await server.client.sessions.end(id)
  })
})

test('a server that stops says so to its viewers, and does not wait for them', async () => {
  const other = await startTestServer()
  onTestFinished(() => other.close())
  const { id } = await other.client.sessions.create({ template: 'python' })
  const connection = await other.client.terminals.open(id)
  const startedAt = Date.now()
  expect(await other.stop()).toBe(0)
  expect(Date.now() - startedAt).toBeLessThan(20_000)
  expect(['serverStopping', 'sandboxGone']).toContain((await connection.ended).reason)
})
