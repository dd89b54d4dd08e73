import {
  eventually,
  listSandboxProcesses,
  type ProcessInfo,
} from '../../integration/support/sandbox-processes.ts'
import { startTestServer, type TestServer } from '../../integration/support/test-server.ts'
import { JsonConnection } from '../support/json-connection.ts'

/** Far from those of the tests. */
const UIDS = { base: 360_000, count: 20_000 }
export const CODE = 'print(42)'

interface Ran {
  status: string
  stdout: string
  path?: string
}

/** A real server, asked to run `print(42)` over kept connections. */
export class ExecuteLab {
  readonly server: TestServer
  readonly #connections: JsonConnection[] = []

  private constructor(server: TestServer) {
    this.server = server
  }

  /** Gives a lab to `work`, and closes it. */
  static async use<Result>(
    env: Record<string, string>,
    work: (lab: ExecuteLab) => Promise<Result>,
  ): Promise<Result> {
    const uids = { ASH_SANDBOX_UID_BASE: String(UIDS.base), ASH_SANDBOX_UID_COUNT: String(UIDS.count) }
    const lab = new ExecuteLab(await startTestServer({ env: { ...uids, ...env } }))
    try {
      return await work(lab)
    } finally {
      for (const connection of lab.#connections) connection.close()
      await lab.server.close()
    }
  }

  async connect(): Promise<Runner> {
    const connection = await JsonConnection.open(this.server.url, this.server.apiKey)
    this.#connections.push(connection)
    return new Runner(connection)
  }

  /** A template of Python with so many interpreters ready for single runs. */
  async template(name: string, spares: number): Promise<string> {
    const warm = { ephemeral: { min: spares, target: spares } }
    await this.server.client.templates.create({ name, runtime: 'python3', warm })
    await this.spares(spares)
    return name
  }

  async session(): Promise<string> {
    return (await this.server.client.sessions.create({ template: 'python' })).id
  }

  sandboxProcesses(): Promise<ProcessInfo[]> {
    return listSandboxProcesses(UIDS.base, UIDS.count)
  }

  /** Until there are so many spares. */
  async spares(count: number): Promise<void> {
    await eventually(
      () => this.#metric('ash_pool_sandboxes{state="warm"}'),
      (spares) => spares >= count,
      60_000,
    )
  }

  async #metric(name: string): Promise<number> {
    const headers = { authorization: `Bearer ${this.server.apiKey}` }
    const text = await (await fetch(`${this.server.url}/metrics`, { headers })).text()
    const line = text.split('\n').find((one) => one.startsWith(`${name} `))
    return Number(line?.slice(name.length + 1) ?? 0)
  }
}

/** One client: one request at a time. */
export class Runner {
  readonly #connection: JsonConnection

  constructor(connection: JsonConnection) {
    this.#connection = connection
  }

  /** Milliseconds of a run that leaves nothing. Throws where it did not go the way expected. */
  async once(template: string, expected?: 'warm' | 'cold'): Promise<number> {
    return this.#run('/api/execute', { template, code: CODE }, expected)
  }

  /** Milliseconds of a run in the kernel of a session. */
  async inKernel(sessionId: string): Promise<number> {
    return this.#run(`/api/sessions/${sessionId}/execute`, { code: CODE })
  }

  async #run(path: string, request: object, expected?: string): Promise<number> {
    const { ms, body } = await this.#connection.post(path, request)
    const { execution } = body as { execution: Ran }
    if (execution.status !== 'completed' || execution.stdout !== '42\n')
      throw new Error(`the run went wrong: ${JSON.stringify(execution)}`)
    if (expected !== undefined && execution.path !== expected)
      throw new Error(`the run was ${execution.path}, not ${expected}`)
    return ms
  }
}
