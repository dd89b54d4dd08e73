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
  const answerTo = async (id: string) => {
    await expect.poll(() => events, { timeout: 10_000 }).toContainEqual(expect.objectContaining({ id }))
    return events.filter((event) => (event as { id: string }).id === id)
  }
  return { send, answerTo }
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

test.each(['exec', 'query', 'resume', 'interrupt', 'permission'] as const)(
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
    } as unknown as BridgeCommand)
    expect(await answerTo('1')).toMatchObject([{ ev: 'error', error: 'the sandbox has not been configured' }])
  },
)

async function childrenOfThis(): Promise<string> {
  return readFile(`/proc/self/task/${process.pid}/children`, 'utf8')
}
