import { type NetworkPolicy, parsePolicy } from '@ash-ai/sandbox'
import type { Language, Network, Packages } from '@ash-ai/shared'
import { runStep } from '../agents/agent-install.ts'
import { packageSteps } from '../agents/agent-packages.ts'
import { kernelsOf } from '../executions/kernels.ts'
import type { LiveSession } from '../sessions/live-sessions.ts'
import { readRunSettings } from '../sessions/run-settings.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { getSession } from '../sessions/session-queries.ts'
import { useSession } from '../sessions/session-wake.ts'
import type { InstallFindings } from './package-installs.ts'
import { ask, environmentOf } from './session-environment.ts'

const CHECK_TIMEOUT_MS = 60_000
const MAX_WARNINGS = 50
const MAX_WARNING_CHARS = 500

interface InstallTarget {
  tenantId: string
  sessionId: string
  packages: Packages
  timeoutMs: number
  /** To be reached meanwhile where the session may reach nothing. What else runs in its sandbox can use that. */
  openHosts?: string[]
}

/**
 * Installs packages into the environment of a session, inside its sandbox and under its network policy unless told
 * otherwise. The output is in its log. Throws `setup_failed` with what pip or npm said.
 */
export async function installPackages(deps: SessionDeps, target: InstallTarget): Promise<InstallFindings> {
  const { tenantId, sessionId } = target
  return useSession(deps, tenantId, sessionId, async (live) => {
    // The sandbox stands still while files are saved.
    if (live.saving !== undefined) await live.saving
    const had = (await kernelsOf(live).list()).map(({ language }) => language)
    await withNetwork(deps, live, target, (policy) => runSteps(deps, live, target, policy))
    return {
      warnings: target.packages.pip ? await checkPip(deps, live) : [],
      restartKernels: languagesOf(target.packages).some((language) => had.includes(language)),
    }
  })
}

/** Hands over the policy in force. What is opened is nowhere stored: a sandbox that starts anew is closed. */
async function withNetwork(
  deps: SessionDeps,
  live: LiveSession,
  { tenantId, sessionId, openHosts }: InstallTarget,
  work: (policy: NetworkPolicy) => Promise<void>,
): Promise<void> {
  const stored = async () => (await getSession(deps.db, tenantId, sessionId)).network
  const before = await stored()
  if (openHosts === undefined || JSON.parse(before) !== 'none') return work(toPolicy(before))
  const opened = parsePolicy(openHosts)
  live.sandbox.setNetwork(opened)
  try {
    await work(opened)
  } finally {
    // Closed at once; then as somebody wants it who changed it meanwhile, perhaps while it is read.
    for (let now = before, set = ''; now !== set; now = await stored()) {
      live.sandbox.setNetwork(toPolicy(now))
      set = now
    }
  }
}

const toPolicy = (network: string) => parsePolicy(JSON.parse(network) as Network)

async function runSteps(
  deps: SessionDeps,
  live: LiveSession,
  target: InstallTarget,
  policy: NetworkPolicy,
): Promise<void> {
  const { tenantId, sessionId, packages, timeoutMs } = target
  const row = await getSession(deps.db, tenantId, sessionId)
  const { runtime } = readRunSettings(row)
  const python = runtime?.startsWith('python') ? runtime : undefined
  const environment = environmentOf(deps, sessionId)
  const run = {
    sandbox: live.sandbox,
    blueprint: {},
    note: ({ type, data }: { type: 'log' | 'limit' | 'egress_denied'; data: unknown }) =>
      live.log.append(type, null, JSON.stringify(data)),
  }
  const endMs = performance.now() + timeoutMs
  for (const step of packageSteps({ packages, python, dir: undefined }, deps.install.indexes, policy)) {
    const leftMs = Math.max(1_000, Math.round(endMs - performance.now()))
    await runStep(run, { ...step, command: `${environment} ${step.command}` }, leftMs)
  }
}

/** What does not fit together is no failure: it may never be used. */
async function checkPip(deps: SessionDeps, { sandbox, fence }: LiveSession): Promise<string[]> {
  const command = `${environmentOf(deps, fence.sessionId)} cd / && exec "$VIRTUAL_ENV/bin/python" -m pip check`
  const { exitCode, stdout } = await ask(sandbox, command, CHECK_TIMEOUT_MS)
  if (exitCode === 0) return []
  const lines = stdout.split('\n').filter((line) => line.trim() !== '')
  return lines.slice(0, MAX_WARNINGS).map((line) => line.slice(0, MAX_WARNING_CHARS))
}

const languagesOf = ({ pip, npm }: Packages): Language[] => [
  ...(pip ? (['python'] as const) : []),
  ...(npm ? (['javascript'] as const) : []),
]
