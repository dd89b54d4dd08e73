import { readFile } from 'node:fs/promises'
import { eventually } from '../../support/sandbox-processes.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'

/** A server that can be made to die at a named step, on data that stay. */
export interface FaultyServer extends TestServer, AsyncDisposable {
  /** Started so that it dies at the point, `name` or `name:n`. */
  arm(point: string): Promise<void>
  /** Resolves when the server has died at its point; fails where it does not. */
  died(): Promise<void>
  /** Started again, with no point to die at. */
  revive(): Promise<void>
}

const DEATH_MS = 20_000

export async function startFaultyServer(env: Record<string, string>): Promise<FaultyServer> {
  const current = { ...env }
  const server = await startTestServer({ env: current })
  return Object.assign(server, {
    async arm(point: string) {
      current.ASH_FAULT_POINT = point
      await server.start()
    },
    async died() {
      const pid = server.pid()
      await eventually(
        () => isAlive(pid),
        (alive) => !alive,
        DEATH_MS,
      )
    },
    async revive() {
      delete current.ASH_FAULT_POINT
      await server.start()
    },
    [Symbol.asyncDispose]: () => server.close(),
  })
}

/** A process that has ended and was not waited for yet does not live. */
async function isAlive(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  return /^State:\s+[^ZX]/m.test(status)
}
