import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type BridgeCommand, decodeEvent, LineSplitter } from '@ash-ai/shared'
import { expect, onTestFinished, test } from 'vitest'
import { Bridge } from './bridge.ts'
import { BridgeConnection } from './bridge-connection.ts'

const SESSION = { sessionId: 's1', env: { OWN: 'value' }, modelToken: 'token' }

/** A bridge that serves one end of a real socket, and what it answers to a command sent to the other. */
async function startBridge() {
  const dir = await mkdtemp(join(tmpdir(), 'ash-bridge-'))
  const server = createServer().listen(join(dir, 'host.sock'))
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const socket = connect(join(dir, 'host.sock'))
  const [host] = (await accepted) as [Socket]
  const connection = new BridgeConnection(socket)
  const bridge = new Bridge(
    {
      workspaceDir: dir,
      homeDir: dir,
      // Would wait for its input for ever, were it started.
      claude: '/bin/cat',
      modelSocket: join(dir, 'model.sock'),
      egressSocket: join(dir, 'egress.sock'),
      kernelsDir: join(import.meta.dirname, 'kernels'),
      ptyModule: join(dir, 'pty.node'),
      env: { PATH: '/usr/bin:/bin' },
    },
    connection,
  )
  void connection.listen((command) => bridge.serve(command))
  const lines = new LineSplitter()
  const events: unknown[] = []
  host.on('data', (chunk: Buffer) => {
    for (const line of lines.push(chunk)) events.push(decodeEvent(line))
  })
  onTestFinished(async () => {
    await bridge.close()
    socket.destroy()
    host.destroy()
    server.close()
    await rm(dir, { recursive: true, force: true })
  })
  const send = (command: BridgeCommand) => host.write(`${JSON.stringify(command)}\n`)
  /** All events of a command, up to the one that ends it. */
  const endOf = async (id: string) => {
    const ends = ['result', 'error'].map((ev) => expect.objectContaining({ id, ev }))
    const find = () => events.some((event) => ends.some((end) => end.asymmetricMatch(event)))
    await expect.poll(find, { timeout: 10_000 }).toBe(true)
    return events.filter((event) => (event as { id: string }).id === id)
  }
  const answerTo = async (id: string) => {
    await expect.poll(() => events, { timeout: 10_000 }).toContainEqual(expect.objectContaining({ id }))
    return events.filter((event) => (event as { id: string }).id === id)
  }
  return { send, answerTo, endOf, bridge }
}

test('a preload before there is a session is answered once, and the session works after it', async () => {
  const { send, answerTo } = await startBridge()
  send({ cmd: 'preload', id: '1' })
  expect(await answerTo('1')).toEqual([{ ev: 'result', id: '1', data: {} }])
  send({ cmd: 'configure', id: '2', session: SESSION })
  expect(await answerTo('2')).toEqual([{ ev: 'result', id: '2', data: {} }])
  send({ cmd: 'exec', id: '3', command: 'echo $OWN $ASH_SESSION_ID', timeoutMs: 10_000 })
  expect(await answerTo('3')).toMatchObject([{ ev: 'result', data: { stdout: 'value s1\n' } }])
})

test('a preload starts no agent', async () => {
  const before = await childrenOfThis()
  const { send, answerTo } = await startBridge()
  send({ cmd: 'preload', id: '1' })
  await answerTo('1')
  expect(await childrenOfThis()).toEqual(before)
})

test('a command sent right behind configure finds its ways out open', async () => {
  const { send, answerTo } = await startBridge()
  send({ cmd: 'configure', id: '1', session: SESSION })
  send({ cmd: 'exec', id: '2', command: 'echo $HTTPS_PROXY $ANTHROPIC_BASE_URL', timeoutMs: 10_000 })
  const [answer] = (await answerTo('2')) as [{ data: { stdout: string } }]
  const urls = answer.data.stdout.trim().split(' ')
  expect(urls).toHaveLength(2)
  for (const url of urls) {
    const { port, hostname: host } = new URL(url)
    const socket = connect({ port: Number(port), host })
    await once(socket, 'connect')
    socket.destroy()
  }
})

test('the ways out are the same before and after a preload', async () => {
  const { send, answerTo } = await startBridge()
  const show = { cmd: 'exec', command: 'echo $ANTHROPIC_BASE_URL', timeoutMs: 10_000 } as const
  send({ cmd: 'configure', id: '1', session: SESSION })
  send({ ...show, id: '2' })
  const [before] = await answerTo('2')
  send({ cmd: 'preload', id: '3' })
  await answerTo('3')
  send({ ...show, id: '4' })
  expect(await answerTo('4')).toMatchObject([{ data: (before as { data: unknown }).data }])
})

const run = (interpreter: string, code: string, timeoutMs = 10_000) =>
  ({ cmd: 'execute', interpreter, request: { kind: 'code', code, timeoutMs }, maxOutputBytes: 1000 }) as const

const SHOW_VARIABLES = 'import os; [os.environ.get("OWN"), os.environ.get("ASH_SESSION_ID")]'

test.each([
  ['finds it', {}, true],
  ['does not, where a program would have to read other variables at its start', { PYTHONPATH: '/x' }, false],
])('who needs the interpreter that was up before the session %s', async (_, env, isFound) => {
  const { send, answerTo, endOf } = await startBridge()
  send({ cmd: 'preload', id: '1', interpreter: { language: 'python', env: {} } })
  await answerTo('1')
  const early = await childrenOfThis()
  send({ cmd: 'configure', id: '2', session: { ...SESSION, env: { ...SESSION.env, ...env } } })
  send({ cmd: 'start', id: '3', language: 'python' })
  const [{ data }] = (await answerTo('3')) as [{ data: { interpreter: string; pid: number } }]
  expect(early.split(' ').includes(String(data.pid))).toBe(isFound)
  send({ ...run(data.interpreter, SHOW_VARIABLES), id: '4' })
  expect(await endOf('4')).toContainEqual({ ev: 'output', id: '4', stream: 'result', data: '["value","s1"]' })
  // It is there once.
  send({ cmd: 'start', id: '5', language: 'python' })
  expect(await answerTo('5')).not.toMatchObject([{ data: { pid: data.pid } }])
})

test('an interpreter runs code, and its events end with what became of it', async () => {
  const { send, answerTo, endOf } = await startBridge()
  send({ cmd: 'configure', id: '1', session: SESSION })
  send({ cmd: 'start', id: '2', language: 'python', env: { MORE: 'too' } })
  const [started] = (await answerTo('2')) as [{ data: { interpreter: string; pid: number } }]
  const { interpreter } = started.data
  send({ ...run(interpreter, 'import os; print(os.environ["OWN"] + os.environ["MORE"]); [1]'), id: '3' })
  expect(await endOf('3')).toMatchObject([
    { ev: 'output', stream: 'stdout', data: 'valuetoo\n' },
    { ev: 'output', stream: 'display', data: expect.stringContaining('"value":true') },
    { ev: 'output', stream: 'result', data: '[1]' },
    { ev: 'result', data: { status: 'completed', truncated: false, isOver: false } },
  ])
  send({ ...run(interpreter, 'import time; time.sleep(1000)'), id: '4' })
  send({ cmd: 'cancel', id: '5', interpreter, how: 'kill' })
  expect(await endOf('4')).toMatchObject([{ ev: 'result', data: { status: 'cancelled', isOver: true } }])
  expect(await answerTo('5')).toEqual([{ ev: 'result', id: '5', data: {} }])
  send({ ...run(interpreter, '1'), id: '6' })
  expect(await endOf('6')).toMatchObject([{ ev: 'error', code: 'interpreter_gone' }])
  send({ cmd: 'stop', id: '7', interpreter })
  expect(await answerTo('7')).toEqual([{ ev: 'result', id: '7', data: {} }])
})

test('a bridge that closes takes its interpreters with it', async () => {
  const { send, answerTo, endOf, bridge } = await startBridge()
  send({ cmd: 'configure', id: '1', session: SESSION })
  send({ cmd: 'start', id: '2', language: 'shell' })
  const [started] = (await answerTo('2')) as [{ data: { interpreter: string; pid: number } }]
  send({ ...run(started.data.interpreter, 'echo begun; sleep 1000'), id: '3' })
  await answerTo('3')
  await bridge.close()
  expect(() => process.kill(started.data.pid, 0)).toThrow('ESRCH')
  expect(await endOf('3')).toMatchObject([{ data: 'begun\n' }, { data: { status: 'cancelled' } }])
})

test.each(['exec', 'query', 'resume', 'interrupt', 'permission', 'start', 'terminal'] as const)(
  '%s before configure is refused, and says why',
  async (cmd) => {
    const { send, answerTo } = await startBridge()
    send({
      cmd,
      id: '1',
      command: 'true',
      timeoutMs: 1,
      content: 'hi',
      options: {},
      language: 'shell',
      cols: 80,
      rows: 24,
    } as unknown as BridgeCommand)
    expect(await answerTo('1')).toMatchObject([{ ev: 'error', error: 'the sandbox has not been configured' }])
  },
)

async function childrenOfThis(): Promise<string> {
  return readFile(`/proc/self/task/${process.pid}/children`, 'utf8')
}
