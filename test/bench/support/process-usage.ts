import { readFile } from 'node:fs/promises'
import type { TestServer } from '../../integration/support/test-server.ts'

const MS_PER_TICK = 10

/** Processor time that a process has used, all threads, in steps of ten milliseconds. */
export async function cpuMs(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]?.split(' ') ?? []
  return (Number(fields[11]) + Number(fields[12])) * MS_PER_TICK
}

/** Resident memory without garbage: otherwise it tells how long ago the last collection was. */
export async function liveRssMb(server: TestServer): Promise<number> {
  await collectGarbage(server)
  const [, kb] = /^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${server.pid()}/status`, 'utf8')) ?? []
  return Number(kb) / 1024
}

/** Needs a server started with `--inspect-port=0`; Node opens its inspector at the first signal. */
async function collectGarbage(server: TestServer): Promise<void> {
  process.kill(server.pid(), 'SIGUSR1')
  const socket = new WebSocket(await inspectorUrl(server))
  await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }))
  const answered = new Promise((resolve) => socket.addEventListener('message', resolve, { once: true }))
  socket.send('{"id":1,"method":"HeapProfiler.collectGarbage"}')
  await answered
  socket.close()
}

async function inspectorUrl(server: TestServer): Promise<string> {
  for (;;) {
    const [, url] = /Debugger listening on (ws:\S+)/.exec(server.log()) ?? []
    if (url !== undefined) return url
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
