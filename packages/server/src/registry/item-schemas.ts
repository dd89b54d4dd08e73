import { AgentName, DeployConfig, Limits, TemplateName, TemplateSettings } from '@ash-ai/shared'
import { z } from 'zod'

const MAX_PROMPT_CHARS = 200_000
const MAX_TOOL_SECONDS = 600
const DEFAULT_TOOL_SECONDS = 30

const Description = z.string().max(1000)
const Texts = z.array(z.string().min(1).max(1000)).max(100)
const Prompt = z.string().min(1).max(MAX_PROMPT_CHARS)

const SIZE = 'must be a size such as "512Mi" or "2Gi", or a number of MB'
/** As Kubernetes writes it, or a number of MB. */
const Megabytes = z
  .union([z.number().int().min(1), z.string().regex(/^[1-9]\d{0,6}(Mi|Gi)$/, SIZE)], { error: SIZE })
  .transform((size) =>
    typeof size === 'number' ? size : Number.parseInt(size, 10) * (size.endsWith('Gi') ? 1024 : 1),
  )

const seconds = (most: number) =>
  z
    .number()
    .min(0.001)
    .max(most)
    .transform((value) => Math.round(value * 1000))

const settings = TemplateSettings.shape
const Packages = settings.packages.unwrap()
const Pip = Packages.shape.pip.unwrap()

export const EnvironmentItem = z.strictObject({
  name: TemplateName,
  description: Description.optional(),
  provider: z.string().optional(),
  template: z.string().optional().describe('A template that is built in, whose languages it has'),
  runtime: settings.runtime,
  languages: settings.languages,
  image: settings.image,
  resources: z
    .strictObject({
      memory: Megabytes.pipe(Limits.shape.memoryMb).optional(),
      cpu: Limits.shape.cpus.optional(),
      disk: Megabytes.pipe(Limits.shape.diskMb).optional(),
      timeout: seconds(3600).optional().describe('Of a run that names none'),
    })
    .optional(),
  mounts: z.array(z.unknown()).optional(),
  environment: settings.env,
  capabilities: z.array(z.enum(['code_execution', 'file_operations', 'network_access'])).optional(),
  packages: z.union([Packages, Pip.transform((pip) => ({ pip }))]).optional(),
  network: settings.network,
  warm: settings.warm,
})
export type EnvironmentItem = z.infer<typeof EnvironmentItem>

export const PromptItem = z.strictObject({
  name: TemplateName,
  description: Description.optional(),
  system_prompt: Prompt,
})
export type PromptItem = z.infer<typeof PromptItem>

const ToolName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, 'must be 1 to 64 letters, digits, "-" or "_"')

/** What the model API takes for the input of a tool. */
const Parameters = z.looseObject({
  type: z.literal('object'),
  properties: z.record(z.string(), z.looseObject({})).optional(),
  required: z.array(z.string()).optional(),
})

const McpServer = z.union([
  z.strictObject({
    type: z.literal('stdio').optional(),
    command: z.string().min(1).max(4096),
    args: z.array(z.string().max(4096)).max(100).optional(),
    env: settings.env,
  }),
  z.strictObject({
    type: z.enum(['http', 'sse']).default('http'),
    url: z.url({ protocol: /^https?$/, error: 'must be a URL that starts with http:// or https://' }),
    headers: z.record(z.string(), z.string()).optional(),
  }),
])

export const ToolItem = z.strictObject({
  name: ToolName,
  description: Description.optional(),
  type: z.enum(['function', 'script', 'mcp']).optional(),
  script: z.string().min(1).max(MAX_PROMPT_CHARS).optional(),
  mcp: McpServer.optional(),
  parameters: Parameters.optional(),
  timeout: seconds(MAX_TOOL_SECONDS).default(DEFAULT_TOOL_SECONDS * 1000),
  allow_network: z.boolean().optional(),
  examples: z.array(z.unknown()).max(20).optional(),
  capabilities: Texts.optional(),
})
export type ToolItem = z.infer<typeof ToolItem>

export const AgentItem = z.strictObject({
  name: AgentName,
  description: Description.optional(),
  environment: z.string().optional(),
  provider: z.string().optional(),
  tools: z.array(z.string().min(1).max(200)).max(200).optional(),
  prompt: z.string().optional(),
  system_prompt: Prompt.optional(),
  capabilities: Texts.optional(),
  examples: z
    .array(z.strictObject({ task: Prompt, approach: Prompt }))
    .max(100)
    .optional(),
  model: DeployConfig.shape.model,
  // Left out is what the registry itself decides, and credentials, which a server has only once it runs.
  config: DeployConfig.omit({
    template: true,
    model: true,
    tools: true,
    allowedTools: true,
    mcpServers: true,
    strictMcpConfig: true,
    credentials: true,
  }).optional(),
})
export type AgentItem = z.infer<typeof AgentItem>
