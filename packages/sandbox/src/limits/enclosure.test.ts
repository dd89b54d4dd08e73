import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { listTreeNow } from '../providers/process-counters.ts'
import { findCgroupMounts } from './cgroup-mounts.ts'
import { chooseLimits } from './choose-limits.ts'
import { findHostPid } from './enclosure.ts'
import type { LimitBackend, LimitGroup } from './limit-backend.ts'
import { DEFAULT_LIMITS } from './resource-limits.ts'

const { v2 } = await findCgroupMounts()
const canEnclose = process.getuid?.() === 0 && v2 !== undefined

describe.runIf(canEnclose)('an enclosure', () => {
  let backend: LimitBackend
  let group: LimitGroup
  const children: ChildProcess[] = []
  beforeEach(async () => {
    backend = await chooseLimits(`ash-enclosure-${process.pid}`, true)
    group = await backend.create('sandbox', { ...DEFAULT_LIMITS, processes: 50 })
  })
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    await group.kill()
    await group.remove()
    await backend.close()
  })

  /** A shell in the group, which waits for its line. */
  const startInGroup = async (script: string) => {
    const child = spawn('bash', ['-c', `read -r _; ${script}`], { stdio: ['pipe', 'pipe', 'inherit'] })
    children.push(child)
    await group.add(child.pid ?? 0)
    return { child, pid: child.pid ?? 0, go: () => child.stdin?.end('go\n') }
  }
  const DAEMON = "env -i setsid sh -c 'sleep 300 & sleep 300' < /dev/null > /dev/null 2>&1 &"

  test('is killed with daemons that hide, and nothing else is', async () => {
    const outside = await startInGroup('sleep 300')
    const inside = await startInGroup(`${DAEMON} echo up; sleep 300`)
    const enclosure = group.enclose('run-1', inside.pid)
    inside.go()
    outside.go()
    await once(inside.child.stdout ?? inside.child, 'data')
    await expect.poll(() => group.pids()?.length).toBeGreaterThanOrEqual(5)
    await enclosure?.kill()
    await enclosure?.remove()
    await expect.poll(() => group.pids()?.length).toBeLessThanOrEqual(2)
    expect(group.pids()).toContain(outside.pid)
    expect(outside.child.exitCode).toBeNull()
  })

  test('tells its own CPU time, also of what is gone', async () => {
    const busy = await startInGroup('for i in $(seq 200000); do :; done; echo done; read -r _')
    const enclosure = group.enclose('run-1', busy.pid)
    const before = enclosure?.cpuMs() ?? 0
    busy.child.stdin?.write('go\n')
    await once(busy.child.stdout ?? busy.child, 'data')
    await enclosure?.kill()
    expect((enclosure?.cpuMs() ?? 0) - before).toBeGreaterThan(20)
    await enclosure?.remove()
  })

  test('what is in it is still the sandbox’s: counted, frozen and killed with it', async () => {
    const inside = await startInGroup('while :; do echo x; done')
    group.enclose('run-1', inside.pid)
    inside.go()
    await once(inside.child.stdout ?? inside.child, 'data')
    expect(group.pids()).toEqual([inside.pid])
    expect(await group.freeze()).toBe(true)
    const { cpuMs } = await group.usage()
    expect((await group.usage()).cpuMs - cpuMs).toBeLessThan(20)
    const exited = once(inside.child, 'exit')
    await group.kill()
    expect((await exited)[1]).toBe('SIGKILL')
    await group.remove()
  })

  test('what a killed server left of it is removed', async () => {
    const inside = await startInGroup('sleep 300')
    group.enclose('run-1', inside.pid)
    inside.go()
    const exited = once(inside.child, 'exit')
    await backend.removeLeftovers()
    expect((await exited)[1]).toBe('SIGKILL')
    expect(
      await readdir(join(v2 ?? '', `ash-enclosure-${process.pid}`), { withFileTypes: true }),
    ).not.toContainEqual(expect.objectContaining({ name: 'sandbox' }))
  })

  test('of a process that has ended there is none, and no group is left', async () => {
    const gone = await startInGroup('exit')
    gone.go()
    await once(gone.child, 'exit')
    expect(() => group.enclose('run-1', gone.pid)).toThrow('ESRCH')
  })
})

test('a pid inside is found only among the processes of the sandbox', async () => {
  const args = ['--pid', '--fork', 'bash', '-c', 'echo $$; read -r _']
  const child = spawn('/usr/bin/unshare', args, { stdio: ['pipe', 'pipe', 'ignore'] })
  try {
    const [line] = (await once(child.stdout, 'data').catch(() => [''])) as [Buffer]
    if (String(line).trim() !== '1') return // Namespaces are not for this user.
    const pids = listTreeNow(child.pid ?? 0)
    expect(findHostPid(pids, 1)).toBe(pids.at(-1))
    expect(findHostPid(pids, 2)).toBeUndefined()
    expect(findHostPid([process.pid], process.pid)).toBeUndefined()
  } finally {
    child.kill('SIGKILL')
    child.stdin.end()
  }
})
