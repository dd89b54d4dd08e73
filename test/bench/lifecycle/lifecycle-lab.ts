import {
  eventually,
  listSandboxProcesses,
  type ProcessInfo,
} from '../../integration/support/sandbox-processes.ts'
import { startTestServer, type TestServer } from '../../integration/support/test-server.ts'
import { JsonConnection } from '../support/json-connection.ts'

/** Far from those of the tests, and enough for a thousand sessions. */
const UIDS = { base: 300_000, count: 50_000 }

const WORKSPACE = { files: 1000, bytes: 102_400 }
const CHANGED = 10
/** After this, what was written tells by its ctime that it has not changed. */
export const SETTLE_MS = 1100
const AGENT = 'bench'

interface LabOptions {
  env?: Record<string, string>
  /** Spares of the agent. */
  warm?: number
}

/** A real server with one agent deployed, asked over a kept connection where it is timed. */
export class LifecycleLab {
  readonly server: TestServer
  #connection: JsonConnection | undefined
  #changes = 0

  private constructor(server: TestServer) {
    this.server = server
  }

  /** Gives a lab to `work`, and closes it. */
  static async use<Result>(
    { env = {}, warm = 0 }: LabOptions,
    work: (lab: LifecycleLab) => Promise<Result>,
  ): Promise<Result> {
    const uids = { ASH_SANDBOX_UID_BASE: String(UIDS.base), ASH_SANDBOX_UID_COUNT: String(UIDS.count) }
    const server = await startTestServer({ env: { ...uids, ...env } })
    const lab = new LifecycleLab(server)
    try {
      await server.client.agents.deploy({ name: AGENT, systemPrompt: 'An agent.', config: { warm } })
      return await work(lab)
    } finally {
      lab.#disconnect()
      await server.close()
    }
  }

  get client() {
    return this.server.client
  }

  async create(): Promise<string> {
    return (await this.client.sessions.create({ agent: AGENT })).id
  }

  /** Milliseconds of a create, and the session. */
  async timeCreate(): Promise<{ ms: number; id: string }> {
    const { ms, body } = await this.post('/api/sessions', { agent: AGENT })
    return { ms, id: (body as { session: { id: string } }).session.id }
  }

  async post(path: string, body?: object): Promise<{ ms: number; body: unknown }> {
    this.#connection ??= await JsonConnection.open(this.server.url, this.server.apiKey)
    return this.#connection.post(path, body)
  }

  async timePost(path: string, body?: object): Promise<number> {
    return (await this.post(path, body)).ms
  }

  /** Throws where the session did not come back that way. */
  async timeResume(id: string, expected: 'warm' | 'cold_local'): Promise<number> {
    const { ms, body } = await this.post(`/api/sessions/${id}/resume`)
    const { resumed } = body as { resumed: string }
    if (resumed !== expected) throw new Error(`resumed ${resumed}, not ${expected}`)
    return ms
  }

  async exec(id: string, command: string): Promise<void> {
    const { exitCode, stderr } = await this.client.sessions.exec(id, { command })
    if (exitCode !== 0) throw new Error(`${command} ended with ${exitCode}: ${stderr}`)
  }

  /** Files of random bytes in the workspace of a session. */
  async fill(id: string): Promise<void> {
    const { files, bytes } = WORKSPACE
    const split = `split --bytes=${bytes} --numeric-suffixes --suffix-length=4 - f`
    await this.exec(id, `mkdir files && cd files && head -c ${files * bytes} /dev/urandom | ${split}`)
  }

  /** Writes ten of those files anew; each time the next ten. */
  async change(id: string): Promise<void> {
    const first = this.#changes
    this.#changes = (first + CHANGED) % WORKSPACE.files
    const names = `$(seq --format=f%04g ${first} ${first + CHANGED - 1})`
    await this.exec(
      id,
      `cd files && for n in ${names}; do head -c ${WORKSPACE.bytes} /dev/urandom > $n; done`,
    )
  }

  async stop(how: 'stop' | 'kill'): Promise<void> {
    this.#disconnect()
    await this.server[how]()
  }

  /** Until there are so many spares. */
  async spares(count: number): Promise<void> {
    const warm = () => this.#metric('ash_pool_sandboxes{state="warm"}')
    await eventually(warm, (spares) => spares === count, 60_000)
  }

  /** How many of the sessions so far found a spare. */
  async warmCreates(): Promise<number> {
    return this.#metric('ash_session_creates_total{path="warm"}')
  }

  async sandboxProcesses(): Promise<ProcessInfo[]> {
    return listSandboxProcesses(UIDS.base, UIDS.count)
  }

  async #metric(name: string): Promise<number> {
    const headers = { authorization: `Bearer ${this.server.apiKey}` }
    const text = await (await fetch(`${this.server.url}/metrics`, { headers })).text()
    const line = text.split('\n').find((one) => one.startsWith(`${name} `))
    return Number(line?.slice(name.length + 1) ?? 0)
  }

  #disconnect(): void {
    this.#connection?.close()
    this.#connection = undefined
  }
}
