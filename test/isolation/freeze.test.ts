import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type LabSandbox, SandboxLab } from './support/sandbox-lab.ts'

const PULSE = { pingIntervalMs: 50, pongTimeoutMs: 300 }

/** Writes to a file of the workspace as fast as it can, several at once, in sessions of their own. */
const WRITERS = 'for n in 1 2 3; do setsid bash -c "while :; do echo x >> count-$n; done" & done'

describe('a frozen sandbox', () => {
  let lab: SandboxLab
  beforeAll(async () => {
    lab = await SandboxLab.start({ pulse: PULSE })
  })
  afterAll(() => lab.dispose())

  const startWriting = async () => {
    const sandbox = await lab.startSandbox()
    await sandbox.exec(WRITERS)
    await grows(sandbox)
    return sandbox
  }
  const sizes = ({ request }: LabSandbox) =>
    Promise.all(
      [1, 2, 3].map(
        async (n) => (await stat(join(request.dirs.workspace, `count-${n}`)).catch(() => ({ size: 0 }))).size,
      ),
    )
  const grows = async (sandbox: LabSandbox) => {
    const before = await sizes(sandbox)
    const allGrew = async () => (await sizes(sandbox)).every((size, index) => size > (before[index] ?? 0))
    await expect.poll(allGrew, { timeout: 10_000 }).toBe(true)
  }

  test('changes no file until it is thawed', async () => {
    const sandbox = await startWriting()
    for (let round = 0; round < 10; round++) {
      expect(await sandbox.freeze()).toBe(true)
      const before = await sizes(sandbox)
      await sleep(20) // In which the writers would write hundreds of lines.
      expect(await sizes(sandbox)).toEqual(before)
      sandbox.thaw()
      await grows(sandbox)
    }
    expect((await sandbox.exec('echo alive')).stdout).toBe('alive\n')
    await sandbox.stop()
  })

  test('is not taken for one that does not answer, however long it stands', async () => {
    const sandbox = await lab.startSandbox()
    const waiting = sandbox.exec('sleep 0.2; echo done')
    expect(await sandbox.freeze()).toBe(true)
    await sleep(PULSE.pongTimeoutMs * 4)
    expect(sandbox.bridge.isClosed).toBe(false)
    sandbox.thaw()
    expect((await waiting).stdout).toBe('done\n')
    await sandbox.stop()
  })

  test('stops like any other, and nothing inside runs on', async () => {
    const sandbox = await startWriting()
    const pids = sandbox.pids() ?? []
    expect(pids.length).toBeGreaterThan(4)
    expect(await sandbox.freeze()).toBe(true)
    const before = await sizes(sandbox)
    await sandbox.stop()
    await sandbox.exited
    expect(await sizes(sandbox)).toEqual(before)
    for (const pid of pids) await expect(readFile(`/proc/${pid}/stat`)).rejects.toThrow()
    expect(sandbox.pids()).toEqual([])
    expect(await sandbox.freeze()).toBe(false)
  })

  test('that is thawed while it freezes runs', async () => {
    const sandbox = await startWriting()
    const freezing = sandbox.freeze()
    sandbox.thaw()
    expect(await freezing).toBe(false)
    await grows(sandbox)
    await sandbox.stop()
  })
})
