import { AgentOptions } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { changedOptions, LIVE_OPTIONS, queryOptions } from './query-options.ts'

/** One value for every option that a client may set: an option missing here fails the first test. */
const EVERY_OPTION: Required<AgentOptions> = {
  model: 'claude-test',
  fallbackModel: 'claude-other',
  systemPrompt: { type: 'preset', preset: 'claude_code', append: 'Be brief.' },
  permissionMode: 'acceptEdits',
  permissions: { ask: ['Bash'], timeoutMs: 1000, onTimeout: 'deny' },
  maxTurns: 3,
  maxBudgetUsd: 0.5,
  taskBudget: { total: 10 },
  effort: 'xhigh',
  thinking: { type: 'enabled', budgetTokens: 1024 },
  maxThinkingTokens: 0,
  outputFormat: { type: 'json_schema', schema: { type: 'object' } },
  tools: [],
  allowedTools: ['Bash(ls:*)'],
  disallowedTools: ['WebFetch'],
  toolAliases: { Shell: 'Bash' },
  mcpServers: { own: { command: 'node', args: ['server.mjs'], env: { KEY: 'value' } } },
  strictMcpConfig: false,
  agents: { helper: { description: 'helps', prompt: 'Help.' } },
  initialAgent: 'helper',
  skills: 'all',
  plugins: [{ type: 'local', path: './plugin' }],
  settings: { env: { A: 'b' } },
  settingSources: [],
  betas: ['context-1m'],
  includePartialMessages: true,
  includeHookEvents: false,
  forwardSubagentText: true,
  promptSuggestions: false,
}

test('every option of the API has an example here', () => {
  expect(Object.keys(EVERY_OPTION).sort()).toEqual(Object.keys(AgentOptions.shape).sort())
  expect(AgentOptions.parse(EVERY_OPTION)).toEqual(EVERY_OPTION)
})

/** One has another name at the SDK, and one stands for functions. */
const OWN = ['initialAgent', 'permissions']
const passedThrough = Object.entries(EVERY_OPTION).filter(([name]) => !OWN.includes(name))

test.each(passedThrough)('%s reaches the SDK unchanged', (name, value) => {
  expect(queryOptions({ [name]: value }, {})).toHaveProperty(name, value)
})

test('all options at once reach the SDK, and nothing else but what Ash adds', () => {
  const { initialAgent, permissions: _, ...others } = EVERY_OPTION
  expect(queryOptions(EVERY_OPTION, {})).toEqual({
    ...others,
    agent: initialAgent,
    allowDangerouslySkipPermissions: true,
  })
})

test('without options the project’s settings are read and the sandbox is the only boundary', () => {
  expect(queryOptions({}, {})).toEqual({
    settingSources: ['project'],
    permissionMode: 'bypassPermissions',
    allowDangerouslySkipPermissions: true,
  })
})

test('whoever wants to be asked gets a mode that asks, unless another is chosen', () => {
  expect(queryOptions({ permissions: { ask: true } }, {}).permissionMode).toBe('default')
  expect(queryOptions({ permissions: { ask: ['Bash'] } }, {}).permissionMode).toBe('bypassPermissions')
  expect(queryOptions({ permissions: { ask: false } }, {}).permissionMode).toBe('bypassPermissions')
  const chosen = { permissionMode: 'bypassPermissions', permissions: { ask: true } }
  expect(queryOptions(chosen, {}).permissionMode).toBe('bypassPermissions')
})

test('how long a request may wait does not concern the query; what is asked about does', () => {
  const before = { permissions: { ask: ['Bash'], timeoutMs: 1 } }
  expect(changedOptions(before, { permissions: { ask: ['Bash'], timeoutMs: 2 } })).toEqual([])
  expect(changedOptions(before, { permissions: { ask: ['Write'], timeoutMs: 1 } })).toEqual(['permissions'])
  expect(changedOptions(before, {})).toEqual(['permissions'])
  expect(changedOptions({ permissions: { ask: false } }, {})).toEqual([])
})

test('what the host sets wins over what a client sends', () => {
  const host = { cwd: '/workspace', pathToClaudeCodeExecutable: '/opt/ash/claude', env: { A: '1' } }
  const given = { cwd: '/', pathToClaudeCodeExecutable: '/tmp/evil', env: { A: '2' }, resume: 'other' }
  expect(queryOptions(given, { ...host, resume: 'own' })).toMatchObject({ ...host, resume: 'own' })
})

test('options are compared by value and named in order', () => {
  expect(changedOptions(EVERY_OPTION, structuredClone(EVERY_OPTION))).toEqual([])
  expect(changedOptions({ model: 'a', effort: 'low' }, { model: 'b', maxTurns: 1 })).toEqual([
    'effort',
    'maxTurns',
    'model',
  ])
  expect(changedOptions({ agents: { a: { tools: ['x'] } } }, { agents: { a: { tools: ['y'] } } })).toEqual([
    'agents',
  ])
})

test('an option set to undefined is as good as absent', () => {
  expect(changedOptions({}, { model: undefined })).toEqual([])
})

test('only model and permission mode change on a live query', () => {
  expect([...LIVE_OPTIONS].sort()).toEqual(['model', 'permissionMode'])
})
