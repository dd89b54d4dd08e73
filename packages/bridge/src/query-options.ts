import { isDeepStrictEqual } from 'node:util'
import type { Options } from './agent-sdk.ts'

/** Options as they come from agent, session and message: plain JSON under the SDK's names. */
export type TurnOptions = Record<string, unknown>

/** What an open query can be told; anything else needs a new one. */
export const LIVE_OPTIONS = new Set(['model', 'permissionMode'])

/** Names of the options in which two sets differ. */
export function changedOptions(before: TurnOptions, after: TurnOptions): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)])
  return [...names].filter((name) => !isDeepStrictEqual(before[name], after[name])).sort()
}

/** The caller's options unchanged, over Ash's defaults; `initialAgent` is the SDK's `agent`. */
export function queryOptions(given: TurnOptions, host: Options): Options {
  const { initialAgent, ...options } = given
  return {
    settingSources: ['project'],
    // The sandbox is the boundary; a prompt nobody answers would only stall the agent.
    permissionMode: 'bypassPermissions',
    ...(options as Options),
    ...(typeof initialAgent === 'string' && { agent: initialAgent }),
    // Only permits the mode, so that a live query can change to it.
    allowDangerouslySkipPermissions: true,
    ...host,
  }
}
