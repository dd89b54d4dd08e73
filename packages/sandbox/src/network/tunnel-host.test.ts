import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { TunnelHost } from './tunnel-host.ts'

async function startHost() {
  const path = join(await tempDir(), 'tunnel.sock')
  const host = await TunnelHost.listen(path, undefined)
  onTestFinished(() => host.close())
  const sockets: Socket[] = []
  const dial = (line: string): Socket => {
    const socket = connect(path).on('error', () => {})
    sockets.push(socket)
    socket.write(line)
    return socket
  }
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
  })
  return { host, path, dial }
}

const closed = (socket: Socket) => new Promise((resolve) => socket.once('close', resolve))

test('a tunnel is what names its token, with all that follows it', async () => {
  const { host, dial } = await startHost()
  const socket = await host.open(3000, async (port, token) => {
    dial(`${token}\nhello from ${port}`).end()
    return true
  })
  if (!socket) throw new Error('no tunnel')
  expect(await text(socket)).toBe('hello from 3000')
})

test('where nothing listens there is none', async () => {
  const { host } = await startHost()
  expect(await host.open(3000, async () => false)).toBeUndefined()
})

test('a token is good for one tunnel, and only while somebody waits for it', async () => {
  const { host, dial } = await startHost()
  const tokens: string[] = []
  const first = await host.open(3000, async (_port, token) => {
    tokens.push(token)
    dial(`${token}\n`)
    return true
  })
  await host.open(3000, async (_port, token) => {
    tokens.push(token)
    return false
  })
  expect(new Set(tokens).size).toBe(2)
  for (const token of tokens) await closed(dial(`${token}\n`).resume())
  expect(first?.destroyed).toBe(false)
})

test.each([
  ['no token', `${'0'.repeat(64)}\n`],
  ['a request', `GET / HTTP/1.1\r\nhost: x\r\n${'x: y\r\n'.repeat(20)}`],
  ['a line too long', '0'.repeat(100)],
])('whoever says %s is dropped', async (_what, line) => {
  const { dial } = await startHost()
  await closed(dial(line).resume())
})

test('strangers keep nobody out for long, and only so many are let in', async () => {
  const { host, dial } = await startHost()
  const strangers = Array.from({ length: 40 }, () => dial('x').resume())
  await Promise.race(strangers.map(closed))
  await expect.poll(() => strangers.filter((socket) => socket.closed).length).toBe(8)
  for (const socket of strangers) socket.destroy()
  await expect
    .poll(async () => {
      const socket = await host.open(80, async (_port, token) => {
        dial(`${token}\n`)
        return true
      })
      return socket !== undefined
    })
    .toBe(true)
})

test('only so many tunnels are open, and only so many are asked for at once', async () => {
  const { host, dial } = await startHost()
  let asking = 0
  let most = 0
  const open = () =>
    host.open(80, async (_port, token) => {
      most = Math.max(most, ++asking)
      await once(dial(`${token}\n`), 'connect')
      asking--
      return true
    })
  const tunnels = await Promise.all(Array.from({ length: 256 }, open))
  expect(most).toBe(16)
  await expect(open()).rejects.toMatchObject({ code: 'too_many_readers' })
  tunnels[0]?.destroy()
  await expect
    .poll(() =>
      open().then(
        () => true,
        () => false,
      ),
    )
    .toBe(true)
})

test('what fails in the bridge fails here, and so does what waits when the host closes', async () => {
  const { host, path, dial } = await startHost()
  const failing = host.open(80, () => Promise.reject(new Error('broken')))
  await expect(failing).rejects.toThrow('broken')
  const opened = await host.open(80, async (_port, token) => {
    dial(`${token}\n`)
    return true
  })
  const waiting = host.open(80, () => new Promise(() => {}))
  const gone = opened && closed(opened)
  const refused = expect(waiting).rejects.toMatchObject({ code: 'sandbox_died' })
  await host.close()
  await Promise.all([gone, refused])
  await expect(stat(path)).rejects.toThrow('ENOENT')
})

test('nobody but its owner may connect', async () => {
  const { path } = await startHost()
  expect((await stat(path)).mode & 0o777).toBe(0o600)
})
