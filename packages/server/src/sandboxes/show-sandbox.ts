import { execFile } from 'node:child_process'
import { statfs } from 'node:fs/promises'
import { promisify } from 'node:util'
import { type Sandbox, sessionDirs } from '@ash-ai/sandbox'
import type { SandboxInfo } from '@ash-ai/shared'
import { storedLimits } from '../sessions/effective-limits.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import type { StoredSandbox } from './list-sandboxes.ts'

const run = promisify(execFile)
const COUNT_TIMEOUT_MS = 5_000

/** Sandboxes as clients see them, with what they use now. `countsDisk`: also where that takes going through the files. */
export async function showSandboxes(
  deps: SessionDeps,
  rows: StoredSandbox[],
  { countsDisk }: { countsDisk: boolean },
): Promise<SandboxInfo[]> {
  const limits = await limitsOf(deps, rows)
  return Promise.all(
    rows.map(async (row) => ({
      ...describe(deps, row),
      ...(row.session_id !== null && { limits: limits.get(row.session_id) }),
      usage: await usageOf(deps, row, countsDisk),
    })),
  )
}

function describe({ provider }: SessionDeps, row: StoredSandbox): SandboxInfo {
  const { session_id, agent_name, agent_version, template } = row
  return {
    id: row.id,
    state: row.state,
    provider: provider.name,
    isolation: provider.isolation,
    ...(session_id !== null && { sessionId: session_id }),
    ...(agent_name !== null && { agentName: agent_name }),
    ...(agent_version !== null && { agentVersion: agent_version }),
    ...(template !== null && { template }),
    enforcement: { backend: provider.limits.backend, limits: provider.limits.enforcement },
    uptimeMs: Math.max(0, Date.now() - row.created_at),
    createdAt: new Date(row.created_at).toISOString(),
    lastUsedAt: new Date(row.last_used_at).toISOString(),
  }
}

/** By session, in one query. */
async function limitsOf({ db }: SessionDeps, rows: StoredSandbox[]) {
  const ids = rows.flatMap(({ session_id }) => (session_id === null ? [] : [session_id]))
  if (ids.length === 0) return new Map<string, SandboxInfo['limits']>()
  const stored = await db
    .selectFrom('sessions')
    .select(['id', 'limits'])
    .where('tenant_id', '=', rows[0]?.tenant_id ?? '')
    .where('id', 'in', ids)
    .execute()
  return new Map(stored.map(({ id, limits }) => [id, storedLimits(limits)]))
}

/** Of sandboxes that live in this process; another host knows its own. */
async function usageOf(
  deps: SessionDeps,
  { id, session_id }: StoredSandbox,
  countsDisk: boolean,
): Promise<SandboxInfo['usage']> {
  const sandbox = session_id === null ? undefined : deps.live.get(session_id)?.sandbox
  if (session_id === null || sandbox?.id !== id) return undefined
  const [used, diskBytes] = await Promise.all([readUsage(sandbox), diskUse(deps, session_id, countsDisk)])
  return used && { ...used, ...(diskBytes !== undefined && { diskBytes }) }
}

async function readUsage(sandbox: Sandbox) {
  const { cpuMs, memoryBytes, peakMemoryBytes, processes } = await sandbox.usage()
  return { cpuMs: Math.round(cpuMs), memoryBytes, peakMemoryBytes, processes }
}

/** A file system of its own knows at once; folders have to be counted. Undefined where that cannot be said. */
async function diskUse(
  { disk, dataDir }: SessionDeps,
  sessionId: string,
  countsDisk: boolean,
): Promise<number | undefined> {
  const folder = sessionDirs(dataDir, sessionId).disk
  try {
    if (disk.name === 'loop') {
      const { blocks, bfree, bsize } = await statfs(folder)
      return (blocks - bfree) * bsize
    }
    if (!countsDisk) return undefined
    const { stdout } = await run('du', ['-s', '-x', '-B1', '--', folder], { timeout: COUNT_TIMEOUT_MS })
    return Number(/^\d+/.exec(stdout)?.[0])
  } catch {
    return undefined // It is going, or has more files than can be counted in that time.
  }
}
