import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { NO_GROUP } from '../limits/rlimit.ts'
import { watchProcess } from './watch-process.ts'

/** Of a process; undefined where there is none. */
function stateOf(pid: number): string | undefined {
  try {
    return /\) (\w)/.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.[1]
  } catch {
    return undefined
  }
}

// What bubblewrap does when the bridge is killed from inside: it leaves at once, its init only hears of it.
test('a sandbox has exited when its init is gone, also where no control group says so', async () => {
  const script = `sleep 300 >/dev/null 2>&1 3>&- 4>&- & echo "{ \\"child-pid\\": $! }" >&4; echo $! >&3; read -r _ <&3`
  const child = spawn('bash', ['-c', script], { stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'] })
  const { stream, exited } = await watchProcess(child, { bridgeFd: 3, statusFd: 4 }, NO_GROUP)
  const [first] = (await stream.take(1).toArray()) as [Buffer]
  const init = Number(first.toString())
  expect(stateOf(init)).toMatch(/^[RS]$/)
  child.kill('SIGKILL')
  await exited
  // Its own parent is gone: who inherited it may take a moment to take notice.
  expect([undefined, 'Z', 'X']).toContain(stateOf(init))
})
