import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { BridgeClient, type Sandbox } from '@ash-ai/sandbox'
import { type BridgeCommand, encodeLine } from '@ash-ai/shared'
import { afterEach, expect, onTestFinished, test, vi } from 'vitest'
import { runScript } from './agent-install.ts'

afterEach(() => {
  vi.useRealTimers()
})

test('a bridge that gives signs of life and never says how a script ended is not waited for', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'ash-install-'))
  await writeFile(join(dir, 'install.sh'), '')
  const server = createServer().listen(join(dir, 'bridge.sock'))
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const stream = connect(join(dir, 'bridge.sock'))
  const [bridge] = (await accepted) as [Socket]
  const asked = Promise.withResolvers<void>()
  createInterface({ input: bridge }).on('line', (line) => {
    const { cmd, id } = JSON.parse(line) as BridgeCommand
    if (cmd === 'exec') asked.resolve()
    if (cmd === 'ping') bridge.write(encodeLine({ ev: 'pong', id }))
  })
  onTestFinished(async () => {
    bridge.destroy()
    server.close()
    await rm(dir, { recursive: true, force: true })
  })
  const client = new BridgeClient(stream)
  const sandbox = { bridge: client } as Pick<Sandbox, 'bridge'> as Sandbox
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const running = runScript({ sandbox, blueprint: { dir, packages: {} }, note: () => {} }, 'install.sh')
  await asked.promise
  vi.runAllTimers()
  await expect(running).rejects.toMatchObject({
    code: 'setup_failed',
    message: expect.stringContaining('install.sh of the agent did not end within 300 s'),
  })
  // A sandbox ends with the connection to its bridge.
  expect(client.isClosed).toBe(true)
})
