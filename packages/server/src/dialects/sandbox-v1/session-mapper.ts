import { randomBytes } from 'node:crypto'
import { SANDBOX_PATHS } from '@ash-ai/sandbox'
import type { NewSession, Session } from '@ash-ai/shared'
import type { PackageIndexes } from '../../agents/agent-packages.ts'
import { readRunSettings } from '../../sessions/run-settings.ts'
import { fromSpec, indexOf, toPackages } from './dependencies.ts'
import { fromLimits, toLimits } from './resources.ts'
import type { V1SessionRow } from './session-queries.ts'
import type { V1SessionCreate } from './session-schemas.ts'

/** As the core knows it. A session that says no mode takes as many executions as come. */
export function toNewSession(request: V1SessionCreate, template: string): NewSession {
  const { mode, agent_id, timeout, env_vars, dependencies } = request
  const limits = { ...toLimits(request), ...toLimits(request.resources ?? {}) }
  return {
    template,
    mode: mode ?? 'persistent',
    ...(agent_id && { agentId: agent_id }),
    ...(timeout && { timeout: timeout * 1000 }),
    ...(env_vars && { env: env_vars }),
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(dependencies.length > 0 && { packages: toPackages(dependencies) }),
  }
}

/** For a client that chooses none. */
export function newExternalId(now = new Date()): string {
  const day = now.toISOString().slice(0, 10).replaceAll('-', '')
  return `sess_${day}_${randomBytes(8).toString('hex')}`
}

export const shownId = ({ id, external_id }: Pick<V1SessionRow, 'id' | 'external_id'>) => external_id ?? id

/** `shown` is the session as the core shows it. */
export function toV1Session(row: V1SessionRow, shown: Session, indexes: PackageIndexes) {
  const { runtime, packages } = readRunSettings(row)
  const dependencies = (packages.pip ?? []).map(fromSpec)
  return {
    id: shownId(row),
    template_id: row.template ?? '',
    mode: row.mode,
    agent_id: row.agent_id,
    status: row.v1_status,
    resource_limit: fromLimits(shown.limits),
    workspace_path: SANDBOX_PATHS.workspace,
    language_runtime: runtime ?? shown.languages[0] ?? '',
    runtime_type: shown.provider,
    runtime_node: row.owner_id,
    container_id: row.sandbox_id,
    pod_name: null,
    env_vars: shown.env,
    timeout: Math.ceil(shown.timeout / 1000),
    python_package_index_url: indexOf(indexes),
    ...installation(row, shown, dependencies),
    error_message: shown.error?.message ?? null,
    created_at: shown.createdAt,
    updated_at: shown.lastActiveAt,
    completed_at: shown.endedAt ?? null,
    last_activity_at: shown.lastActiveAt,
  }
}

/** A session exists once its packages do; which versions they are, only pip knows where none was asked for. */
function installation(
  { v1_status }: V1SessionRow,
  { createdAt, error }: Session,
  dependencies: ReturnType<typeof fromSpec>[],
) {
  const hasFailed = v1_status === 'failed' && error?.code === 'setup_failed'
  const isDone = !hasFailed && v1_status !== 'creating'
  return {
    requested_dependencies: dependencies,
    installed_dependencies: isDone ? dependencies.map((each) => toInstalled(each, createdAt)) : [],
    dependency_install_status: hasFailed ? 'failed' : isDone ? 'completed' : 'installing',
    dependency_install_error: hasFailed ? error.message : null,
    dependency_install_started_at: dependencies.length > 0 ? createdAt : null,
    dependency_install_completed_at: dependencies.length > 0 && isDone ? createdAt : null,
  }
}

export const toInstalled = ({ name, version }: ReturnType<typeof fromSpec>, time: string) => ({
  name,
  version: version?.startsWith('==') ? version.slice(2) : (version ?? ''),
  install_location: `${SANDBOX_PATHS.home}/.venv`,
  install_time: time,
  is_from_template: false,
})
