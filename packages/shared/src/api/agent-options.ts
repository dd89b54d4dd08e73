import { z } from 'zod'
import { PermissionSettings } from './permission-schemas.ts'

const JsonObject = z.record(z.string(), z.unknown())
const Names = z.array(z.string().max(500)).max(500)

/**
 * Options of the Claude Agent SDK that an agent, a session or a message may set. They reach the SDK under the
 * same name and unchanged; a message's win over its session's, and those over the agent's. Left out are the
 * options that are functions or that name host paths; `permissions` stands for the callback that asks.
 */
export const AgentOptions = z.strictObject({
  model: z.string().min(1).max(200).optional(),
  fallbackModel: z.string().min(1).max(200).optional(),
  systemPrompt: z.union([z.string().max(1_000_000), z.array(z.string()), JsonObject]).optional(),
  permissionMode: z
    .enum(['default', 'acceptEdits', 'bypassPermissions', 'plan', 'dontAsk', 'auto'])
    .optional(),
  permissions: PermissionSettings.optional(),
  maxTurns: z.number().int().min(1).optional(),
  maxBudgetUsd: z.number().min(0).optional(),
  taskBudget: JsonObject.optional(),
  effort: z.enum(['low', 'medium', 'high', 'xhigh', 'max']).optional(),
  thinking: JsonObject.optional(),
  maxThinkingTokens: z.number().int().min(0).optional(),
  outputFormat: JsonObject.optional(),
  tools: z.union([Names, JsonObject]).optional(),
  allowedTools: Names.optional(),
  disallowedTools: Names.optional(),
  toolAliases: z.record(z.string(), z.string()).optional(),
  mcpServers: JsonObject.optional(),
  strictMcpConfig: z.boolean().optional(),
  agents: JsonObject.optional(),
  /** The SDK's `agent` option: which of `agents` leads the conversation. */
  initialAgent: z.string().min(1).max(200).optional(),
  skills: z.union([Names, z.literal('all')]).optional(),
  plugins: z.array(JsonObject).optional(),
  settings: JsonObject.optional(),
  settingSources: z.array(z.enum(['user', 'project', 'local'])).optional(),
  betas: Names.optional(),
  includePartialMessages: z.boolean().optional(),
  includeHookEvents: z.boolean().optional(),
  forwardSubagentText: z.boolean().optional(),
  promptSuggestions: z.boolean().optional(),
})
export type AgentOptions = z.infer<typeof AgentOptions>
