import { packageEnv, type Sandbox, sessionDirs } from '@ash-ai/sandbox'
import { AshError, ExecReply } from '@ash-ai/shared'
import type { SessionDeps } from '../sessions/session-deps.ts'

/** The environment of a session's own packages, whether or not there is any yet, as words of a command. */
export function environmentOf({ install, dataDir }: SessionDeps, sessionId: string): string {
  const paths = install.pathsInside(sessionDirs(dataDir, sessionId))
  const { VIRTUAL_ENV = '', NPM_CONFIG_PREFIX = '' } = packageEnv(paths, { pip: true, npm: true })
  return `export VIRTUAL_ENV=${quote(VIRTUAL_ENV)} NPM_CONFIG_PREFIX=${quote(NPM_CONFIG_PREFIX)};`
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

/** Runs a command of ours in a sandbox. What it says is as trustworthy as whatever runs in there. */
export async function ask({ bridge }: Sandbox, command: string, timeoutMs: number): Promise<ExecReply> {
  const reply = ExecReply.safeParse(await bridge.call({ cmd: 'exec', command, timeoutMs }))
  if (reply.success) return reply.data
  throw new AshError('bridge_protocol_error', 'The sandbox did not say how a command ended')
}
