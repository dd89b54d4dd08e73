import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { findCgroupMounts } from '@ash-ai/sandbox'
import { type AshClient, isAshError } from '@ash-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { deployTestAgent } from '../integration/support/conversation.ts'
import { startTestServer, type TestServer } from '../integration/support/test-server.ts'

// Only for a machine with control groups of version 2 and a group that is this user's: `pnpm test:vm` boots one.

const run = promisify(execFile)
const GROUPS = '/sys/fs/cgroup'
const HELD = { memoryMb: 'hard', cpus: 'hard', processes: 'hard', openFiles: 'hard', fileSizeMb: 'hard' }
const WARM_UP_TRIES = 3
const ROOT = join(import.meta.dirname, '../..')

async function listGroups(): Promise<string[]> {
  const { stdout } = await run('find', [GROUPS, '-mindepth', '1', '-type', 'd'])
  return stdout.split('\n').filter(Boolean)
}

/** The group in which a sandbox with just this limit of processes runs. */
async function groupWith(processes: number): Promise<string | undefined> {
  for (const folder of await listGroups()) {
    const limit = await readFile(join(folder, 'pids.max'), 'utf8').catch(() => '')
    if (limit.trim() === String(processes)) return folder
  }
  return undefined
}

/** Programs that were never read may take longer to start here than a server waits; then they are in memory. */
async function warmUp({ sessions }: AshClient): Promise<void> {
  for (let tries = 0; tries < WARM_UP_TRIES; tries++) {
    const session = await sessions.create({ agent: 'zebra' }).catch((error: unknown) => {
      if (!isAshError(error, 'sandbox_start_failed')) throw error
    })
    if (!session) continue
    await sessions.end(session.id)
    return
  }
}

describe('control groups of version 2', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer()
    await deployTestAgent(server.client)
    await warmUp(server.client)
  })
  afterAll(() => server?.close())

  test('this machine has control groups of version 2 alone', async () => {
    expect(await findCgroupMounts()).toMatchObject({ v1: {}, v2: expect.stringContaining(GROUPS) })
  })

  test('doctor and health say cgroup-v2 and that the kernel holds every limit', async () => {
    const { stdout } = await run(process.execPath, ['scripts/doctor.mjs', '--json'], { cwd: ROOT })
    expect(JSON.parse(stdout).summary.limits).toMatchObject({ backend: 'cgroup-v2', enforcement: HELD })
    expect((await server.client.health()).limits).toMatchObject({ backend: 'cgroup-v2', enforcement: HELD })
  })

  test('the kernel was given the limits that the session asked for, and the group ends with the session', async () => {
    const limits = { memoryMb: 600, cpus: 1.5, processes: 201 }
    const { id } = await server.client.sessions.create({ agent: 'zebra', limits })
    const group = (await groupWith(limits.processes)) ?? 'no group'
    const read = async (file: string) => (await readFile(join(group, file), 'utf8')).trim()
    expect(await read('memory.max')).toBe(String(600 * 1024 * 1024))
    expect(await read('cpu.max')).toBe('150000 100000')
    // No file where the kernel has no swap.
    expect(await read('memory.swap.max').catch(() => '0')).toBe('0')
    expect((await read('cgroup.procs')).split('\n').length).toBeGreaterThan(1)
    await server.client.sessions.end(id)
    expect(await groupWith(limits.processes)).toBeUndefined()
  })

  test('a killed server’s groups are found and removed by the next one, started from the same place', async () => {
    await server.client.sessions.create({ agent: 'zebra', limits: { processes: 202 } })
    expect(await groupWith(202)).toBeDefined()
    await server.kill()
    await server.start()
    expect(await groupWith(202)).toBeUndefined()
    expect((await server.client.health()).limits.backend).toBe('cgroup-v2')
  })

  test('servers started from one place stay in one group, however often', async () => {
    const groupOf = async () => (await readFile(`/proc/${server.pid()}/cgroup`, 'utf8')).trim()
    const before = await groupOf()
    await server.stop()
    await server.start()
    expect(await groupOf()).toBe(before)
  })
})
