import { findCgroupMounts } from '@ash-ai/sandbox'
import { isAshError } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { SandboxLab } from './support/sandbox-lab.ts'

const { v2 } = await findCgroupMounts()
const canEnclose = process.getuid?.() === 0 && v2 !== undefined

describe.runIf(canEnclose)('an enclosure in a sandbox', () => {
  let lab: SandboxLab
  beforeAll(async () => {
    lab = await SandboxLab.start()
  })
  afterAll(() => lab?.dispose())

  test('holds what a process of the sandbox starts, whatever it does to hide, and only that', async () => {
    const sandbox = await lab.startSandbox()
    const waiting =
      'setsid bash -c "until [ -e go ]; do sleep 0.01; done; $DAEMON" > /dev/null 2>&1 & echo $!'
    const daemon = 'env -i setsid sleep 300 & env -i setsid sleep 301 & touch up; wait'
    const { stdout } = await sandbox.exec(`DAEMON='${daemon}'; ${waiting}`)
    await sandbox.exec('setsid --fork sleep 302 > /dev/null 2>&1')
    const enclosure = await sandbox.enclose(Number(stdout))
    expect(enclosure).toBeDefined()
    await sandbox.exec('touch go; until [ -e up ]; do :; done')
    const sleeps = async () =>
      (await sandbox.exec('pgrep -x -a sleep | grep -o "30[0-9]" | sort | xargs')).stdout.trim()
    await expect.poll(sleeps).toBe('300 301 302')
    await enclosure?.kill()
    await enclosure?.remove()
    expect(await sleeps()).toBe('302')
    expect(enclosure?.cpuMs()).toBe(0)
  })

  test('no pid leads to a process outside', async () => {
    const sandbox = await lab.startSandbox()
    for (const pid of [process.pid, process.ppid, 4_000_000]) {
      const error = await sandbox.enclose(pid).catch((thrown: unknown) => thrown)
      expect(isAshError(error, 'interpreter_gone')).toBe(true)
    }
    const inside = await sandbox.enclose(1)
    expect(await sandbox.exec('echo alive')).toMatchObject({ stdout: 'alive\n' })
    await sandbox.stop()
    await inside?.kill()
  })
})
