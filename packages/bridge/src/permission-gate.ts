import type { HookCallback, Options } from './agent-sdk.ts'

type Ask = true | string[]

/** What the turn's `permissions.ask` says; undefined where nobody wants to be asked. */
export function askSetting({ permissions }: Record<string, unknown>): Ask | undefined {
  if (typeof permissions !== 'object' || permissions === null || !('ask' in permissions)) return undefined
  const { ask } = permissions
  return ask === true || Array.isArray(ask) ? (ask as Ask) : undefined
}

/**
 * Makes the SDK ask about these tools whatever its permission mode would allow by itself. The hook only says that
 * somebody must be asked: the asking itself is the SDK's permission callback, which may take its time.
 */
export function gateHooks(ask: Ask): NonNullable<Options['hooks']> {
  if (ask !== true && ask.length === 0) return {}
  const isGated = matcher(ask)
  const hook: HookCallback = async (input) => {
    if (input.hook_event_name !== 'PreToolUse' || !isGated(input.tool_name, input.permission_mode)) return {}
    return { hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision: 'ask' } }
  }
  // A gate that fails must not be an open one.
  return { PreToolUse: [{ hooks: [hook], onFailure: 'block' }] }
}

function matcher(ask: Ask): (tool: string, mode: string | undefined) => boolean {
  // Every other mode asks by itself, about what it was made to ask about.
  if (ask === true) return (_tool, mode) => mode === undefined || mode === 'bypassPermissions'
  const patterns = ask.map((name) => new RegExp(`^${name.replaceAll('.', '\\.').replace(/\*+/g, '.*')}$`))
  return (tool) => patterns.some((pattern) => pattern.test(tool))
}
