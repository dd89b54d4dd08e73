import { z } from 'zod'
import { MAX_AGENT_FILES } from '../constants.ts'
import { AgentName, Env, IsoTime, RelativePath } from './common-schemas.ts'
import { Packages } from './package-schemas.ts'
import { AgentConfig } from './sandbox-settings.ts'
import { TemplateName } from './template-schemas.ts'

export const FileInput = z
  .strictObject({
    path: RelativePath,
    content: z.base64().describe('The bytes, base64'),
    executable: z.boolean().optional(),
  })
  .meta({ id: 'FileInput' })
export type FileInput = z.infer<typeof FileInput>

/** What an agent may set: options for every session, and what its set-up installs. */
export const DeployConfig = AgentConfig.extend({
  template: TemplateName.optional().describe(
    'The environment of its sessions; what the agent sets itself wins',
  ),
  packages: Packages.optional().describe('Installed once for each version, inside the sandbox'),
  warm: z
    .number()
    .int()
    .min(0)
    .max(100)
    .optional()
    .describe('Sandboxes kept ready for new sessions of the newest version; default ASH_WARM_SPARES'),
})
export type DeployConfig = z.infer<typeof DeployConfig>

export const AgentDeploy = z
  .strictObject({
    name: AgentName,
    files: z.array(FileInput).min(1).max(MAX_AGENT_FILES).optional(),
    systemPrompt: z
      .string()
      .min(1)
      .max(1_000_000)
      .optional()
      .describe('Becomes CLAUDE.md where `files` has none'),
    path: z
      .string()
      .max(4096)
      .optional()
      .describe('A folder on the server; only where the operator allows it'),
    env: Env.optional(),
    config: DeployConfig.optional().describe(
      'Options for every session; override those of ash.json in the folder',
    ),
  })
  .meta({ id: 'AgentDeploy' })
export type AgentDeploy = z.infer<typeof AgentDeploy>

export const Agent = z
  .object({
    name: z.string(),
    version: z.number().int(),
    contentHash: z.string().describe('SHA-256 over the paths, modes and bytes of the folder'),
    createdAt: IsoTime,
    updatedAt: IsoTime,
    env: z.record(z.string(), z.literal('***')).describe('Names only: values are never shown'),
    config: DeployConfig,
  })
  .meta({ id: 'Agent' })
export type Agent = z.infer<typeof Agent>

export const AgentVersion = z
  .object({
    version: z.number().int(),
    contentHash: z.string(),
    files: z.number().int(),
    bytes: z.number().int(),
    createdAt: IsoTime,
  })
  .meta({ id: 'AgentVersion' })
export type AgentVersion = z.infer<typeof AgentVersion>
