import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { type Agent, DeployConfig } from '@ash-ai/shared'
import type { SecretBox } from '../db/secret-box.ts'
import type { AgentVersionsTable } from '../db/tables.ts'

/** Tells a version from every other, also from one of the same name and number that was deleted: seals are random. */
export function fingerprintOf(
  row: Pick<AgentVersionsTable, 'content_hash' | 'config' | 'env_sealed'>,
): string {
  return createHash('sha256')
    .update(JSON.stringify([row.content_hash, row.config, row.env_sealed]))
    .digest('hex')
}

export type AgentEnv = Record<string, string>

export interface NewVersion {
  name: string
  contentHash: string
  files: number
  bytes: number
  config: DeployConfig
  env: AgentEnv
}

export type AgentRow = AgentVersionsTable & { agent_created_at: number; updated_at: number }

/** As clients see it: of the environment only the names. */
export function toAgent(secrets: SecretBox, row: AgentRow): Agent {
  const names = Object.keys(openEnv(secrets, row))
  return {
    name: row.agent_name,
    version: row.version,
    contentHash: row.content_hash,
    createdAt: toIso(row.agent_created_at),
    updatedAt: toIso(row.updated_at),
    env: Object.fromEntries(names.map((name) => [name, '***' as const])),
    config: toConfig(row.config),
  }
}

/** Whether deploying `next` over this version would change nothing. */
export const isSame = (secrets: SecretBox, row: AgentVersionsTable, next: NewVersion) =>
  row.content_hash === next.contentHash &&
  isDeepStrictEqual(toConfig(row.config), next.config) &&
  isDeepStrictEqual(openEnv(secrets, row), next.env)

const MAX_REMEMBERED = 200
/** By their text: each new session asks for the configuration of its agent. */
const configs = new Map<string, DeployConfig>()

export function toConfig(json: string): DeployConfig {
  const known = configs.get(json)
  if (known) return known
  const config = DeployConfig.parse(JSON.parse(json))
  if (configs.size >= MAX_REMEMBERED) configs.clear()
  configs.set(json, config)
  return config
}

export const openEnv = (secrets: SecretBox, row: AgentVersionsTable): AgentEnv =>
  secrets.open(row.env_sealed, envAad(row.tenant_id, row.agent_name, row.version)) as AgentEnv

/** Ties a sealed environment to its version. */
export const envAad = (tenantId: string, name: string, version: number) =>
  `agent:${tenantId}:${name}:${version}`

export const toIso = (epochMs: number) => new Date(epochMs).toISOString()
