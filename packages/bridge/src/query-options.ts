import type { Options } from './agent-sdk.ts'
import { util } from './late-modules.ts'
import { askSetting } from './permission-gate.ts'

/** Options as they come from agent, session and message: plain JSON under the SDK's names. */
export type TurnOptions = Record<string, unknown>

/** What an open query can be told; anything else needs a new one. */
export const LIVE_OPTIONS = new Set(['model', 'permissionMode'])

/** Names of the options in which two sets differ. How long a request may wait is the host's business alone. */
export function changedOptions(before: TurnOptions, after: TurnOptions): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)])
  const value = (options: TurnOptions, name: string) =>
    name === 'permissions' ? askSetting(options) : options[name]
  const { isDeepStrictEqual } = util()
  return [...names].filter((name) => !isDeepStrictEqual(value(before, name), value(after, name))).sort()
}

/**
 * The caller's options unchanged, over Ash's defaults; `initialAgent` is the SDK's `agent`. What `permissions`
 * asks for is a callback, and so part of `host`.
 */
export function queryOptions(given: TurnOptions, host: Options): Options {
  const { initialAgent, permissions: _, ...options } = given
  return {
    settingSources: ['project'],
    // The sandbox is the boundary; a prompt nobody answers would only stall the agent.
    permissionMode: askSetting(given) === true ? 'default' : 'bypassPermissions',
    ...(options as Options),
    ...(typeof initialAgent === 'string' && { agent: initialAgent }),
    // Only permits the mode, so that a live query can change to it.
    allowDangerouslySkipPermissions: true,
    ...host,
  }
}
