import { expect, test } from 'vitest'
import { askSetting, gateHooks } from './permission-gate.ts'

/** Whether the hook makes the SDK ask about a tool. */
async function asksAbout(ask: true | string[], tool: string, mode = 'default'): Promise<boolean> {
  const hook = gateHooks(ask).PreToolUse?.[0]?.hooks[0]
  const input = { hook_event_name: 'PreToolUse', tool_name: tool, tool_input: {}, permission_mode: mode }
  const base = { session_id: 's', transcript_path: '/t', cwd: '/', tool_use_id: 't' }
  const output = await hook?.({ ...base, ...input } as never, 't', { signal: new AbortController().signal })
  return JSON.stringify(output ?? {}).includes('"permissionDecision":"ask"')
}

test.each([
  [['Bash'], 'Bash', true],
  [['Bash'], 'BashOutput', false],
  [['bash'], 'Bash', false],
  [['Bash', 'Write'], 'Write', true],
  [['mcp__git__*'], 'mcp__git__push', true],
  [['mcp__git__*'], 'mcp__github__push', false],
  [['*'], 'Anything', true],
  [['*Edit'], 'NotebookEdit', true],
  [['a.b'], 'axb', false],
  [['a.b'], 'a.b', true],
])('%j gates %s: %s, in any mode', async (ask, tool, isGated) => {
  for (const mode of ['default', 'bypassPermissions']) expect(await asksAbout(ask, tool, mode)).toBe(isGated)
})

test('true gates every tool where the mode would ask about none, and leaves the rest to the mode', async () => {
  expect(await asksAbout(true, 'Read', 'bypassPermissions')).toBe(true)
  expect(await asksAbout(true, 'Read', 'default')).toBe(false)
})

test('without tools to gate there is no hook to pay for', () => {
  expect(gateHooks([])).toEqual({})
})

test.each([
  [{}, undefined],
  [{ permissions: undefined }, undefined],
  [{ permissions: {} }, undefined],
  [{ permissions: { ask: false } }, undefined],
  [{ permissions: { ask: true } }, true],
  [{ permissions: { ask: [] } }, []],
])('%j asks %j', (options, ask) => {
  expect(askSetting(options)).toEqual(ask)
})
