import type { InstalledPackages } from '@ash-ai/shared'
import { z } from 'zod'
import type { LiveSession } from '../sessions/live-sessions.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { useSession } from '../sessions/session-wake.ts'
import { ask, environmentOf } from './session-environment.ts'

const LIST_TIMEOUT_MS = 60_000
const MAX_LISTED = 2_000
const MAX_TEXT_CHARS = 200

const Text = z.string().max(MAX_TEXT_CHARS)
/** As these programs print it, if it is they that print it. */
const PipList = z.array(z.object({ name: Text, version: Text })).max(MAX_LISTED)
const NpmList = z.object({ dependencies: z.record(Text, z.object({ version: Text.optional() })).optional() })

const PIP = 'exec "$VIRTUAL_ENV/bin/python" -m pip list --format=json --disable-pip-version-check --no-input'
const NPM = 'exec npm ls --global --json --depth=0'

/** What is installed in the environment of a session; the sandbox says. */
export async function listPackages(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
): Promise<Pick<InstalledPackages, 'pip' | 'npm'>> {
  return useSession(deps, tenantId, sessionId, async (live) => {
    if (live.saving !== undefined) await live.saving
    const [pip, npm] = await Promise.all([listPip(deps, live), listNpm(deps, live)])
    return { pip, npm }
  })
}

async function listPip(deps: SessionDeps, live: LiveSession): Promise<InstalledPackages['pip']> {
  const known = PipList.safeParse(await askJson(deps, live, `[ -x "$VIRTUAL_ENV/bin/python" ] && ${PIP}`))
  return known.success ? known.data : []
}

async function listNpm(deps: SessionDeps, live: LiveSession): Promise<InstalledPackages['npm']> {
  // Not what the machine has: only below the session's own prefix.
  const json = await askJson(deps, live, `[ -d "$NPM_CONFIG_PREFIX/lib/node_modules" ] && ${NPM}`)
  const known = NpmList.safeParse(json)
  const found = Object.entries(known.success ? (known.data.dependencies ?? {}) : {})
  return found.slice(0, MAX_LISTED).map(([name, { version = '' }]) => ({ name, version }))
}

/** Undefined where there is nothing to ask, or nothing sensible is said. */
async function askJson(deps: SessionDeps, live: LiveSession, command: string): Promise<unknown> {
  const environment = environmentOf(deps, live.fence.sessionId)
  const { stdout } = await ask(live.sandbox, `${environment} cd / && ${command} 2>/dev/null`, LIST_TIMEOUT_MS)
  try {
    return JSON.parse(stdout)
  } catch {
    return undefined
  }
}
