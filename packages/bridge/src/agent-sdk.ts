import type {
  CanUseTool,
  HookCallback,
  Options,
  PermissionResult,
  Query,
  SDKMessage,
  SDKUserMessage,
} from '@anthropic-ai/claude-agent-sdk'

export type { CanUseTool, HookCallback, Options, PermissionResult, Query, SDKMessage, SDKUserMessage }

/** The only import of the agent SDK. It costs more than all else at start, so it waits for the first turn. */
export async function loadAgentSdk(): Promise<{
  query: typeof import('@anthropic-ai/claude-agent-sdk').query
}> {
  return import('@anthropic-ai/claude-agent-sdk')
}
