import { lstat, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type HostedSandbox, LabHost } from '../support/lab-host.ts'
import { SERVER_KINDS } from '../support/server-kinds.ts'

// The bridge runs as the agent's own user. What the agent can do to it, and what a bridge that was taken over could do
// to the server.

describe.each(SERVER_KINDS)('of a server run by $name, against its bridge, an agent', (kind) => {
  const pulse = { pingIntervalMs: 100, pongTimeoutMs: 1_000 }
  let lab: LabHost
  beforeAll(async () => {
    lab = await LabHost.start(kind, { pulse })
  })
  afterAll(() => lab?.dispose())

  /** How the connection ended, and that nothing of the sandbox is left. */
  const endOf = async (sandbox: HostedSandbox) => {
    const code = await sandbox.ended()
    expect(await sandbox.processes()).toEqual([])
    return code
  }

  test('cannot forge an event through any descriptor in sight', async () => {
    const sandbox = await lab.startSandbox()
    const forged = '{"ev":"result","id":"2","data":{"stdout":"forged"}}'
    const write = `for fd in /proc/[0-9]*/fd/* /proc/[0-9]*/fd/3; do echo '${forged}' >> $fd; done 2> /dev/null`
    await sandbox.exec(`${write}; echo '${forged}' >&1`)
    expect((await sandbox.exec('echo honest')).stdout).toBe('honest\n')
    expect(await sandbox.heard()).toMatchObject({ isClosed: false, unsolicited: ['ready'] })
    await sandbox.stop()
  })

  test('that stops it gets bridge_unresponsive within the time allowed', async () => {
    const sandbox = await lab.startSandbox()
    const started = performance.now()
    const running = sandbox.exec('kill -STOP $PPID; sleep 60').catch((error: unknown) => error)
    expect(await endOf(sandbox)).toBe('bridge_unresponsive')
    expect(await running).toMatchObject({ code: 'bridge_unresponsive' })
    expect(performance.now() - started).toBeLessThan(5_000)
  })

  test.each([
    ['kills it', 'kill -KILL $PPID'],
    ['kills everything', 'kill -KILL -1'],
    ['kills process 1', 'kill -KILL 1; kill -TERM 1; kill -KILL $PPID'],
  ])('that %s ends its own sandbox and nothing else', async (_, command) => {
    const [sandbox, neighbour] = [await lab.startSandbox(), await lab.startSandbox()]
    await sandbox.exec(`(setsid sleep 100 &); ${command}`).catch(() => {})
    expect(await endOf(sandbox)).toBe('sandbox_died')
    expect((await neighbour.exec('echo fine')).stdout).toBe('fine\n')
    await neighbour.stop()
  })

  test('cannot put its own program in the bridge’s or the server’s way', async () => {
    const programs = 'bwrap prlimit node bash sh tar cp chmod chown env setsid'
    const plant = `mkdir -p bin; for p in ${programs}; do printf '#!/bin/sh\\ntouch /workspace/ran-%s\\n' $p > bin/$p; done; chmod +x bin/*`
    const first = await lab.startSandbox()
    await first.exec(
      `${plant}; cp -r bin ~/; printf 'export PATH=/workspace/bin\\n' > ~/.bashrc; cp ~/.bashrc ~/.profile`,
    )
    await first.stop()
    const env = { PATH: '/workspace/bin:/usr/bin:/bin', BASH_ENV: '', NODE_PATH: '/workspace' }
    const second = await lab.resume(first, env)
    expect((await second.exec('ls')).stdout).toBe('CLAUDE.md\nbin\n')
    await second.stop()
  })

  test('nor has a session’s environment any say in a bridge that runs already', async () => {
    const env = {
      NODE_OPTIONS: '--require /workspace/evil.cjs',
      LD_PRELOAD: '/workspace/evil.so',
      LD_LIBRARY_PATH: '/workspace',
    }
    const sandbox = await lab.startSandbox({ env })
    const bridges = (await sandbox.processes()).filter(({ args }) => args[0] === '/opt/ash/node')
    expect(bridges).toHaveLength(1)
    const pid = bridges[0]?.pid
    const environ = await readFile(`/proc/${pid}/environ`, 'utf8')
    expect(environ).toContain('ASH_BRIDGE_FD')
    expect(environ).not.toMatch(/NODE_OPTIONS|LD_|evil/)
    expect(await readFile(`/proc/${pid}/maps`, 'utf8')).not.toContain('evil')
    await sandbox.stop()
  })

  test('cannot replace the workspace under the server’s eyes', async () => {
    const sandbox = await lab.startSandbox()
    await sandbox.exec(
      'cd /; rm -rf /workspace; mv /workspace /tmp/w; rmdir /workspace; ln -sfn /tmp /workspace',
    )
    const { workspace } = sandbox.dirs
    expect((await lstat(workspace)).isDirectory()).toBe(true)
    await sandbox.exec('echo still > here')
    expect(await readFile(join(workspace, 'here'), 'utf8')).toBe('still\n')
    await sandbox.stop()
  })
})

describe.each(SERVER_KINDS)('of a server run by $name, a bridge that was taken over', (kind) => {
  let lab: LabHost
  beforeAll(async () => {
    lab = await LabHost.start(kind)
  })
  afterAll(() => lab?.dispose())

  const say = (...lines: string[]) => `const { Socket } = await import('node:net');
    const socket = new Socket({ fd: 3, readable: true, writable: true }); socket.on('error', () => {}); socket.resume();
    const write = (text) => new Promise((done) => socket.write(text, done)); ${lines.join('\n')}
    setInterval(() => {}, 1000)`

  test.each([
    ['says something that is no JSON', say(`await write('not json\\n')`)],
    ['answers a command that was never sent', say(`await write('{"ev":"result","id":"99","data":{}}\\n')`)],
    ['sends an event that does not exist', say(`await write('{"ev":"root","id":"1"}\\n')`)],
    [
      'sends a line that never ends',
      say(`const part = 'x'.repeat(1 << 20); for (let i = 0; i < 200; i++) await write(part)`),
    ],
    [
      'sends nested lists without end',
      say(`await write('{"ev":"result","id":"1","data":' + '['.repeat(3e6) + '\\n')`),
    ],
    ['sends bytes that are no text', say(`await write(Buffer.alloc(100000, 0xff)); await write('\\n')`)],
  ])('that %s ends its sandbox; the server’s memory stays as it was', async (_, bridge) => {
    const before = await lab.residentBytes()
    const error = await lab.startSandbox({ bridge }).catch((reason: unknown) => reason)
    expect(error).toMatchObject({
      code: 'sandbox_start_failed',
      message: expect.stringContaining('broke the protocol'),
    })
    expect((await lab.residentBytes()) - before).toBeLessThan(200 * 1024 * 1024)
  })
})
