import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chooseLimits, DEFAULT_LIMITS, type LimitBackend, type LimitGroup } from '@ash-ai/sandbox'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { eventually } from '../integration/support/sandbox-processes.ts'

/** A shell that waits for a line before it does anything, as a sandbox waits until it is under its limits. */
async function startUnder(group: LimitGroup, script: string): Promise<ChildProcess> {
  const child = spawn('bash', ['-c', `read -r _; ${script}`], { stdio: ['pipe', 'pipe', 'pipe'] })
  await group.add(child.pid ?? 0)
  child.stdin.end('go\n')
  return child
}
const exitOf = async (child: ChildProcess) => {
  if (child.exitCode !== null || child.signalCode !== null)
    return { code: child.exitCode, signal: child.signalCode }
  const [code, signal] = await once(child, 'exit')
  return { code, signal }
}

describe('the limits of this machine', () => {
  let backend: LimitBackend
  let group: LimitGroup
  let made = 0
  const make = async (change: Partial<typeof DEFAULT_LIMITS>) => {
    group = await backend.create(`test-${process.pid}-${made++}`, { ...DEFAULT_LIMITS, ...change })
    return group
  }
  beforeAll(async () => {
    backend = await chooseLimits(`ash-test-${process.pid}`, true)
  })
  afterAll(() => backend.close())
  afterEach(async () => {
    await group?.kill()
    await group?.remove()
  })

  test('come from control groups, which hold a whole tree', () => {
    expect(backend.name).toMatch(/^cgroup-/)
    expect(backend.enforcement).toMatchObject({ memoryMb: 'hard', cpus: 'hard', processes: 'hard' })
  })

  test('memory: what grows beyond it is killed, and the count tells so', async () => {
    await make({ memoryMb: 64 })
    const child = await startUnder(
      group,
      'exec perl -e \'my $x = "a" x (200 * 1024 * 1024); print length $x\'',
    )
    expect((await exitOf(child)).signal).toBe('SIGKILL')
    expect((await group.usage()).oomKills).toBeGreaterThan(0)
  })

  test('processes: a fork bomb meets the limit', async () => {
    await make({ processes: 30 })
    const bomb = 'for (1..100) { my $p = fork; if (defined $p && !$p) { sleep 60; exit } }'
    const child = await startUnder(group, `exec perl -e '${bomb}'`)
    await exitOf(child)
    const usage = await group.usage()
    expect(usage.processes).toBeLessThanOrEqual(30)
    expect(usage.processesRefused).toBeGreaterThan(0)
  })

  test('kill reaches what was forked twice, stopped, or ignores signals', async () => {
    await make({})
    const script =
      'trap "" TERM INT HUP; (setsid sh -c "sleep 300 & sleep 300" &) ; sleep 300 & kill -STOP $!; echo up; wait'
    const child = await startUnder(group, script)
    await once(child.stdout ?? child, 'data')
    expect((await group.usage()).processes).toBeGreaterThan(2)
    await group.kill()
    expect((await exitOf(child)).signal).toBe('SIGKILL')
    await eventually(
      () => group.usage(),
      ({ processes }) => processes === 0,
    )
  })

  test('a frozen group does nothing until it is thawed', async () => {
    await make({})
    const child = await startUnder(group, 'while :; do echo x; done')
    await once(child.stdout ?? child, 'data')
    expect(await group.freeze()).toBe(true)
    const before = (await group.usage()).cpuMs
    child.stdout?.resume()
    expect((await group.usage()).cpuMs - before).toBeLessThan(20)
    group.thaw()
    await once(child.stdout ?? child, 'data')
  })

  test('an enclosure below dies alone, with what hides in it, and counts as part of the group', async () => {
    await make({ processes: 30 })
    const other = await startUnder(group, 'sleep 300')
    const child = spawn('bash', ['-c', 'read -r _; env -i setsid sleep 300 & echo up; sleep 300'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    await group.add(child.pid ?? 0)
    const enclosure = group.enclose('run-1', child.pid ?? 0)
    child.stdin.end('go\n')
    await once(child.stdout, 'data')
    expect(group.pids()).toEqual(expect.arrayContaining([child.pid, other.pid]))
    expect((await group.usage()).processes).toBeGreaterThanOrEqual(3)
    await enclosure?.kill()
    expect((await exitOf(child)).signal).toBe('SIGKILL')
    expect(await enclosure?.cpuMs()).toBeGreaterThan(0)
    await enclosure?.remove()
    expect(group.pids()).toEqual([other.pid])
  })

  test('leftovers of a killed server are removed with what runs in them', async () => {
    await make({})
    const child = await startUnder(group, 'sleep 300')
    group.enclose('run-1', child.pid ?? 0)
    await backend.removeLeftovers()
    expect((await exitOf(child)).signal).toBe('SIGKILL')
    expect(await group.usage()).toMatchObject({ processes: 0, memoryBytes: 0 })
  })
})
