import { access, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Sandbox } from '@ash-ai/sandbox'
import { AshError, ExecReply } from '@ash-ai/shared'
import type { EventLog } from './event-log.ts'

const TIMEOUT_MS = 300_000
const MAX_SHOWN_CHARS = 16_000
const MAX_REASON_CHARS = 500

interface Setup {
  sandbox: Sandbox
  log: EventLog
  /** The deployed folder: what its scripts say is what runs, whatever became of the copies in the workspace. */
  agentDir: string
  /** Of the session, outside the sandbox. */
  rootDir: string
}

/**
 * Runs an agent's own set-up inside the boundary, like everything else of it: `install.sh` once for a session,
 * `startup.sh` whenever its sandbox starts. Their output is in the session's log; one that fails fails the start.
 */
export async function setUpAgent(setup: Setup): Promise<void> {
  const marker = join(setup.rootDir, 'installed')
  if (!(await exists(marker))) {
    await runScript(setup, 'install.sh')
    await writeFile(marker, '')
  }
  await runScript(setup, 'startup.sh')
}

async function runScript({ sandbox, log, agentDir }: Setup, name: string): Promise<void> {
  if (!(await exists(join(agentDir, name)))) return
  const command = `exec bash "$ASH_AGENT_DIR/${name}" 2>&1`
  const result = ExecReply.safeParse(
    await sandbox.bridge.call({ cmd: 'exec', command, timeoutMs: TIMEOUT_MS }),
  )
  if (!result.success)
    throw new AshError('bridge_protocol_error', `The sandbox did not say how ${name} ended`)
  const { stdout, exitCode, signal, timedOut } = result.data
  const isFailed = exitCode !== 0
  const level = isFailed ? 'error' : 'info'
  await log.append('log', null, JSON.stringify({ level, source: name, text: stdout.slice(-MAX_SHOWN_CHARS) }))
  if (!isFailed) return
  const how = timedOut ? `took longer than ${TIMEOUT_MS / 1000} s` : `ended with ${exitCode ?? signal}`
  throw new AshError('setup_failed', `${name} of the agent ${how}: ${stdout.trim().slice(-MAX_REASON_CHARS)}`)
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )
