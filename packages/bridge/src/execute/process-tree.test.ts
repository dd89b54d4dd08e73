import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { readProcess } from './process-table.ts'
import { ProcessTree } from './process-tree.ts'

/** A shell with a mark in a session of its own. `pidOf` waits for a number that it writes to a file of that name. */
async function startTree(script: string) {
  const dir = await mkdtemp(join(tmpdir(), 'ash-tree-'))
  const mark = `ASH_RUN=${randomUUID()}`
  const env = { PATH: '/usr/bin:/bin', ASH_RUN: mark.slice('ASH_RUN='.length), DIR: dir }
  const child = spawn('/bin/bash', ['-c', script], { env, detached: true, stdio: 'ignore' })
  const tree = new ProcessTree(child.pid ?? 0, mark)
  onTestFinished(async () => {
    await tree.kill()
    await rm(dir, { recursive: true, force: true })
  })
  const pidOf = async (name: string) => {
    const read = () => readFile(join(dir, name), 'utf8').catch(() => '')
    await expect.poll(read, { timeout: 5_000 }).toMatch(/^\d+\n/)
    return Number(await read())
  }
  return { child, tree, pidOf, exited: exit(child) }
}

const exit = async (child: ChildProcess) => (await once(child, 'exit')) as [number | null, string | null]
const isAlive = (pid: number) => readProcess(pid) !== undefined

const DAEMON = 'echo $$ > $DIR/daemon; exec sleep 1000'

test.each([
  ['a child', `bash -c '${DAEMON}' & wait`],
  ['a grandchild', `bash -c 'bash -c "${DAEMON.replaceAll('$', '\\$')}" & wait' & wait`],
  ['one in a session of its own', `setsid bash -c '${DAEMON}' & wait`],
  ['a daemon, forked twice into a session of its own', `(setsid bash -c '${DAEMON}' &) ; sleep 1000`],
  ['one that is stopped', `bash -c 'echo $$ > $DIR/daemon; kill -STOP $$; sleep 1000' & wait`],
  ['one that ignores what it can', `bash -c 'trap "" TERM INT HUP; ${DAEMON}' & wait`],
])('%s dies with the tree', async (_, script) => {
  const { tree, pidOf, exited, child } = await startTree(script)
  const daemon = await pidOf('daemon')
  expect(isAlive(daemon)).toBe(true)
  await tree.kill()
  expect([isAlive(daemon), isAlive(child.pid ?? 0)]).toEqual([false, false])
  expect(await exited).toEqual([null, 'SIGKILL'])
})

test('a daemon is found by its mark after its parents are gone', async () => {
  const { tree, pidOf, exited } = await startTree(`(setsid bash -c '${DAEMON}' &)`)
  const daemon = await pidOf('daemon')
  await exited
  await tree.kill()
  expect(isAlive(daemon)).toBe(false)
})

test('one that has cleared its environment is found where it was seen to belong', async () => {
  const { tree, pidOf, exited, child } = await startTree(
    `setsid env -i DIR=$DIR /bin/bash -c '${DAEMON}' & exec sleep 1000`,
  )
  const daemon = await pidOf('daemon')
  tree.measure()
  child.kill('SIGKILL')
  await exited
  await tree.kill()
  expect(isAlive(daemon)).toBe(false)
})

test('what forks as fast as it can is gone in the end', async () => {
  const { tree, pidOf } = await startTree(
    `f() { [ $1 = 5 ] && exec sleep 1000; for i in 1 2 3 4; do (f $(($1 + 1))) & done; echo $$ > $DIR/bomb; wait; }; f 0`,
  )
  await pidOf('bomb')
  await tree.kill()
  expect(tree.measure()).toBeUndefined()
})

test('others are left alone', async () => {
  const [one, other] = await Promise.all([startTree(`${DAEMON}`), startTree(`${DAEMON}`)])
  await Promise.all([one.pidOf('daemon'), other.pidOf('daemon')])
  await one.tree.kill()
  expect(isAlive(other.child.pid ?? 0)).toBe(true)
})

test('a tree that is gone can be killed again', async () => {
  const { tree, exited } = await startTree('true')
  await exited
  await tree.kill()
  await tree.kill()
})

test('measures what the process and those it started have used, also after their end', async () => {
  const { tree, pidOf, exited } = await startTree(
    `head -c 50000000 /dev/zero | sha256sum > /dev/null; python3 -c 'x = bytearray(100_000_000)
import os
open(os.environ["DIR"] + "/busy", "w").write(f"{os.getpid()}\\n")
while not os.path.exists(os.environ["DIR"] + "/stop"): pass'; exit 0`,
  )
  await pidOf('busy')
  await expect.poll(() => tree.measure()?.cpuMs ?? 0, { timeout: 5_000 }).toBeGreaterThan(100)
  const usage = tree.measure()
  expect(usage?.peakMemoryBytes).toBeGreaterThan(100_000_000)
  expect(usage?.ioReadBytes).toBeGreaterThan(50_000_000)
  await tree.kill()
  await exited
  expect(tree.measure()).toMatchObject({ peakMemoryBytes: usage?.peakMemoryBytes })
})
