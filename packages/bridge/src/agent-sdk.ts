import { join } from 'node:path'
import type {
  CanUseTool,
  HookCallback,
  Options,
  PermissionResult,
  Query,
  SDKMessage,
  SDKUserMessage,
} from '@anthropic-ai/claude-agent-sdk'
import { loadCompiled } from './compiled-module.ts'

export type { CanUseTool, HookCallback, Options, PermissionResult, Query, SDKMessage, SDKUserMessage }

type AgentSdk = Pick<typeof import('@anthropic-ai/claude-agent-sdk'), 'query'>

let loading: Promise<AgentSdk> | undefined

/**
 * The only import of the agent SDK. It costs twice as much as all else at start, so it waits for the first turn, or
 * for the host to ask for it ahead. The bundled bridge has it compiled beside itself.
 */
export function loadAgentSdk(): Promise<AgentSdk> {
  loading ??= load().catch((error: unknown) => {
    loading = undefined // The next turn may have more luck.
    throw error
  })
  return loading
}

async function load(): Promise<AgentSdk> {
  const compiled = loadCompiled(join(import.meta.dirname, 'sdk.cjs'))
  return compiled ? (compiled.exports as unknown as AgentSdk) : import('@anthropic-ai/claude-agent-sdk')
}
