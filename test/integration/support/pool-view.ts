import { createHash, randomUUID } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { AshClient } from '@ash-ai/sdk'
import { eventually } from './sandbox-processes.ts'
import type { TestServer } from './test-server.ts'

/** A sandbox as the database has it. */
interface StoredSandbox {
  id: string
  sessionId: string | null
  agentVersion: number
  state: string
}

/** Also of a server that has stopped. */
export function storedSandboxes({ dataDir }: TestServer): StoredSandbox[] {
  using db = new DatabaseSync(join(dataDir, 'ash.db'))
  const query = `select id, session_id as "sessionId", agent_version as "agentVersion", state
    from sandboxes order by created_at, id`
  return db.prepare(query).all() as unknown as StoredSandbox[]
}

/** A sample of /metrics by its name and labels as they are written there; 0 where there is none yet. */
export async function metric({ url, apiKey }: TestServer, sample: string): Promise<number> {
  const reply = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${apiKey}` } })
  const line = (await reply.text()).split('\n').find((each) => each.startsWith(`${sample} `))
  return Number(line?.slice(sample.length) ?? 0)
}

/** Ids of the sessions that have a folder, and of spares. */
export async function sandboxFolders({ dataDir }: TestServer): Promise<string[]> {
  return (await readdir(join(dataDir, 'sandboxes')).catch(() => [])).sort()
}

/** Mount points below the data directory. */
export async function mountsOf({ dataDir }: TestServer): Promise<string[]> {
  const mounts = (await readFile('/proc/self/mounts', 'utf8')).split('\n')
  return mounts.map((line) => line.split(' ')[1] ?? '').filter((point) => point.startsWith(`${dataDir}/`))
}

/** A client of another tenant, which the API has no way to make yet. */
export function addTenant({ dataDir, url }: TestServer, tenantId: string): AshClient {
  const apiKey = `ash_${randomUUID()}`
  using db = new DatabaseSync(join(dataDir, 'ash.db'), { timeout: 5_000 })
  db.prepare('insert into api_keys (id, tenant_id, key_hash, label, created_at) values (?, ?, ?, ?, ?)').run(
    randomUUID(),
    tenantId,
    createHash('sha256').update(apiKey).digest('hex'),
    'test',
    Date.now(),
  )
  return new AshClient({ baseUrl: url, apiKey, retries: 0 })
}

/** Ids of the sandboxes that wait for a session, when there are so many. */
export async function readySpares(server: TestServer, count: number): Promise<string[]> {
  const ids = () => spareIds(server)
  return (await eventually(ids, ({ length }) => length === count)).sort()
}

export const spareIds = (server: TestServer) =>
  storedSandboxes(server).flatMap(({ id, state }) => (state === 'warm' ? [id] : []))

/** How many sessions `work` makes of spares, and how many it has to start. */
export async function countCreates(server: TestServer, work: () => Promise<unknown>) {
  const count = async (path: string) => metric(server, `ash_session_creates_total{path="${path}"}`)
  const before = { warm: await count('warm'), cold: await count('cold') }
  await work()
  return { warm: (await count('warm')) - before.warm, cold: (await count('cold')) - before.cold }
}

export async function endSessions({ client }: TestServer): Promise<void> {
  const { sessions } = await client.sessions.list({ limit: 100 })
  const open = sessions.filter(({ status }) => status !== 'ended')
  await Promise.all(open.map(({ id }) => client.sessions.end(id)))
}

/** Kills what runs in the sandboxes of a server, from outside: the first of the processes, or all of them. */
export async function killSandboxes(server: TestServer, count = Number.POSITIVE_INFINITY): Promise<void> {
  for (const { pid } of (await server.listSandboxProcesses()).slice(0, count)) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch (error) {
      // It went with the one before it.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }
}
