import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import { afterAll, describe, expect, test } from 'vitest'
import { formatFault } from './fault.ts'
import { loadRegistry } from './load-registry.ts'

const SHIPPED = join(import.meta.dirname, '../../../../registry')
const HOST = { provider: 'bwrap', limits: { ...DEFAULT_LIMITS, memoryMb: 4096, cpus: 2 } }

const root = mkdtempSync(join(tmpdir(), 'ash-registry-'))
afterAll(() => rmSync(root, { recursive: true }))

/** A registry of these files. */
function folder(files: Record<string, string | Uint8Array>): string {
  const dir = mkdtempSync(join(root, 'r-'))
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(dir, dirname(path)), { recursive: true })
    writeFileSync(join(dir, path), content)
  }
  return dir
}

const faultsOf = async (files: Record<string, string | Uint8Array>) =>
  (await loadRegistry(folder(files), HOST)).faults.map(formatFault)

const load = async (files: Record<string, string>) => {
  const { registry, faults } = await loadRegistry(folder(files), HOST)
  expect(faults).toEqual([])
  return registry ?? { templates: [], agents: [] }
}

test('the registry that is shipped has no faults', async () => {
  const { registry, faults, entries } = await loadRegistry(SHIPPED, HOST)
  expect(faults).toEqual([])
  expect(registry?.templates.map(({ name }) => name)).toEqual(['python-datascience', 'python-basic'])
  expect(entries.map(({ kind, name }) => `${kind} ${name}`)).toEqual([
    'environments python-datascience',
    'environments python-basic',
    'agents analyst',
    'agents echo',
    'tools weather-mock',
    'tools word-count',
    'prompts analyst',
  ])
})

describe('an environment', () => {
  test('becomes a template', async () => {
    const { templates } = await load({
      'environments/a.yaml': `name: a
description: All of it
image: python:3.12
template: python
resources: { memory: 512Mi, cpu: 0.5, disk: 1Gi, timeout: 1.5 }
mounts: []
environment: { MODE: fast }
capabilities: [code_execution, network_access]
packages: [requests>=2]
warm: { ephemeral: { target: 1 } }
provider: bwrap`,
      'environments/b.yml': `name: b\npackages: { npm: [left-pad] }\nnetwork: [example.com]\nlanguages: [shell]`,
    })
    expect(templates.map(({ settings }) => settings)).toEqual([
      {
        description: 'All of it',
        image: 'python:3.12',
        languages: ['python', 'shell'],
        limits: { memoryMb: 512, cpus: 0.5, diskMb: 1024 },
        timeout: 1500,
        env: { MODE: 'fast' },
        network: 'open',
        packages: { pip: ['requests>=2'] },
        warm: { ephemeral: { min: 0, target: 1, idle: 300_000 } },
      },
      { packages: { npm: ['left-pad'] }, network: ['example.com'], languages: ['shell'] },
    ])
  })

  test.each([
    [
      'name: a\nresources:\n  memory: lots',
      '3:3 resources.memory: must be a size such as "512Mi" or "2Gi", or a number of MB',
    ],
    ['name: a\nresources:\n  memory: 64Mi', '3:3 resources.memory: must be at least 128'],
    [
      'name: a\nresources:\n  memory: 8Gi',
      '3:3 resources.memory: must be at most 4096, which this server allows',
    ],
    ['name: a\nresources:\n  cpu: 3', '3:3 resources.cpu: must be at most 2, which this server allows'],
    [
      'name: a\nresources:\n  memmory: 512Mi',
      '3:3 resources.memmory: is not known here; did you mean "memory"?',
    ],
    ['name: a\nimages: x', '2:1 images: is not known here; did you mean "image"?'],
    ['name: a\nmounts: ["/etc:/etc"]', '2:1 mounts: folders of the host are not mounted'],
    ['name: a\nprovider: e2b', '2:1 provider: "e2b" is not available: Ash runs sandboxes itself'],
    ['name: a\nprovider: docker', '2:1 provider: "docker" is not available: this server has "bwrap"'],
    ['name: python', '1:1 name: "python" is built in; choose another name'],
    ['name: a b', '1:1 name: must be 1 to 64 letters'],
    ['description: x', '1:1 name: is missing'],
    ['', '1:1 name: is missing'],
    ['- name: a', '1:1 must be a group of fields, not a list'],
    [
      'name: a\ntemplate: pyton',
      '2:1 template: must be one that is built in (node, python, shell); did you mean "python"?',
    ],
    ['name: a\nruntime: python9.9', '2:1 runtime: is not on this host'],
    ['name: a\nenvironment:\n  PORT: 80', '3:3 environment.PORT: must be text, not 80'],
    ['name: a\nenvironment:\n  "A B": x', '3:3 environment.A B: the name must be a variable name'],
    [
      'name: a\npackages:\n  - ok\n  - --index-url',
      '4:5 packages.1: must be a name, perhaps with a version range',
    ],
    [
      'name: a\npackages:\n  pip: ["https://x"]',
      '3:9 packages.pip.0: must be a name, perhaps with a version range',
    ],
    ['name: a\nnetwork: none\ncapabilities: [network_access]', '2:1 network: is "none", while'],
    ['name: a\nnetwork: ["bad host"]', '2:1 network: '],
    ['name: a\nlanguages: [perl]', '2:13 languages.0: must be "python" or "javascript" or "shell"'],
    ['name: a\nwarm: { ephemeral: { min: 3, target: 1 } }', '2:30 warm.ephemeral.target: must be at least'],
    ['name: a\nname: b', '2:1 Map keys must be unique'],
    ['name: [a', '1:9 Flow sequence in block collection must be'],
    ['name: !!js/function x', '1:7 Unresolved tag'],
    ['name: a\n---\nname: b', '2:1 Source contains multiple documents'],
  ])('%j is refused with its place', async (text, expected) => {
    const faults = await faultsOf({ 'environments/e.yaml': text })
    expect(faults).toHaveLength(1)
    expect(faults[0]).toContain(`environments/e.yaml:${expected}`)
  })
})

describe('a tool', () => {
  const of = (text: string) => faultsOf({ 'tools/t.yaml': text })

  test.each([
    ['name: t', '1:1 needs `script` or `mcp`'],
    ['name: Bash\nscript: "#!/bin/sh"', '1:1 name: "Bash" is a tool that every agent can have'],
    ['name: t\nscript: gone.sh', '2:1 script: gone.sh cannot be read (ENOENT)'],
    ['name: t\nscript: ../up.sh', '2:1 script: must be a script of several lines'],
    ['name: t\nscript: "#!/bin/sh"\ntimeout: 601', '3:1 timeout: must be at most 600'],
    [
      'name: t\nscript: "#!/bin/sh"\nparameters: { text: { type: string } }',
      '3:1 parameters.type: must be "object"',
    ],
    ['name: t\ntype: mcp\nscript: "#!/bin/sh"', '2:1 type: is "mcp", but the tool has `script`'],
    ['name: t\nmcp: { url: "ftp://x" }', '2:8 mcp.url: must be a URL'],
    ['name: tools\nmcp: { command: x }', '1:1 name: "tools" is where script tools are'],
  ])('%j is refused with its place', async (text, expected) => {
    expect(await of(text)).toEqual([expect.stringContaining(`tools/t.yaml:${expected}`)])
  })
})

describe('an agent', () => {
  const SYSTEM_PROMPT = 'system_prompt: Be kind.'
  const agent = (text: string, files: Record<string, string> = {}) =>
    faultsOf({ 'agents/a.yaml': `name: a\n${text}`, ...files })

  test('becomes a folder and options', async () => {
    const { agents } = await load({
      'environments/e.yaml': 'name: e',
      'prompts/p.yaml': 'name: p\nsystem_prompt: Be kind.',
      'tools/count.yaml': 'name: count\nscript: |\n  wc -w\ntimeout: 2',
      'tools/files.yaml': 'name: files\nmcp: { command: npx, args: [files] }',
      'tools/web.yaml': 'name: web\nmcp: { url: "https://mcp.example" }',
      'agents/a.yaml': `name: a
description: Counts
environment: e
prompt: p
model: some-model
tools: [Read, count, files, web, count]
capabilities: [counting]
examples: [{ task: Count, approach: With care }]
config: { maxTurns: 3 }`,
    })
    const request = agents[0]?.request
    expect(request?.config).toEqual({
      maxTurns: 3,
      model: 'some-model',
      template: 'e',
      tools: ['Read'],
      allowedTools: ['Read', 'mcp__tools__count', 'mcp__files', 'mcp__web'],
      mcpServers: {
        tools: { command: 'node', args: ['/agent/.ash/tools.mjs'], alwaysLoad: true },
        files: { command: 'npx', args: ['files'], alwaysLoad: true },
        web: { type: 'http', url: 'https://mcp.example', alwaysLoad: true },
      },
      strictMcpConfig: true,
    })
    const entries = await Array.fromAsync(request?.entries ?? [])
    const textOf = async (path: string) => {
      const entry = entries.find((found) => found.path === path)
      return Buffer.concat(await Array.fromAsync(entry?.content ?? [])).toString()
    }
    expect(entries.map(({ path, isExecutable }) => [path, isExecutable])).toEqual([
      ['CLAUDE.md', false],
      ['.ash/tools.mjs', false],
      ['.ash/tools.json', false],
      ['.ash/tools/count', true],
    ])
    expect(await textOf('.ash/tools/count')).toBe('#!/bin/sh\nwc -w\n')
    expect(await textOf('CLAUDE.md')).toBe(
      '# a\n\nCounts\n\nBe kind.\n\n## What you can do\n\n- counting\n\n## How to go about it\n\nTask: Count\n\nApproach: With care\n',
    )
  })

  test('without `tools` has those of the agent SDK', async () => {
    const { agents } = await load({ 'agents/a.yaml': `name: a\n${SYSTEM_PROMPT}` })
    expect(agents[0]?.request.config).toEqual({})
  })

  test.each([
    ['', '1:1 needs `prompt` or `system_prompt`'],
    ['prompt: p\nsystem_prompt: x', '2:1 prompt: an agent has either'],
    ['prompt: analist', '2:1 prompt: there is no prompt "analist"; did you mean "analyst"?'],
    [
      `${SYSTEM_PROMPT}\nenvironment: pyhton`,
      '3:1 environment: there is no environment "pyhton"; did you mean "python"?',
    ],
    [
      `${SYSTEM_PROMPT}\ntools:\n  - Bash\n  - word-cuont`,
      '5:5 tools.1: there is no tool "word-cuont"; did you mean "word-count"?',
    ],
    [
      `${SYSTEM_PROMPT}\ntools: [fetch]`,
      '3:9 tools.0: "fetch" wants the network, but the network of the agent is "none"',
    ],
    [
      `${SYSTEM_PROMPT}\nenvironment: wide\ntools: [word-count]`,
      '4:9 tools.0: "word-count" wants no network, but the network of environment "wide" is "open"',
    ],
    [
      `${SYSTEM_PROMPT}\nenvironment: shell\ncapabilities: [network_access]`,
      '4:1 capabilities: has network_access, but',
    ],
    [
      `${SYSTEM_PROMPT}\nconfig:\n  maxTurn: 3`,
      '4:3 config.maxTurn: is not known here; did you mean "maxTurns"?',
    ],
    [`${SYSTEM_PROMPT}\nconfig:\n  credentials: [x]`, '4:3 config.credentials: is not known here'],
    [
      `${SYSTEM_PROMPT}\nconfig:\n  limits:\n    cpus: 9`,
      '5:5 config.limits.cpus: must be at most 2, which this server allows',
    ],
    [`${SYSTEM_PROMPT}\nconfig:\n  network: ["a b"]`, '4:3 config.network: '],
    [`${SYSTEM_PROMPT}\nexamples:\n  - task: x`, '4:5 examples.0.approach: is missing'],
    [`${SYSTEM_PROMPT}\nprovider: e2b`, '3:1 provider: "e2b" is not available'],
  ])('%j is refused with its place', async (text, expected) => {
    const faults = await agent(text, {
      'environments/wide.yaml': 'name: wide\nnetwork: open',
      'prompts/analyst.yaml': 'name: analyst\nsystem_prompt: x',
      'tools/word-count.yaml': 'name: word-count\nallow_network: false\nscript: "#!/bin/sh"',
      'tools/fetch.yaml': 'name: fetch\nallow_network: true\nscript: "#!/bin/sh"',
    })
    expect(faults).toEqual([expect.stringContaining(`agents/a.yaml:${expected}`)])
  })
})

describe('a registry', () => {
  test('has all its faults in one list, by place', async () => {
    const faults = await faultsOf({
      'environments/b.yaml': 'name: b\nimagee: x\nresources: { memory: 1, cpu: none }',
      'environments/a.yaml': 'name: b',
      'agents/x.yaml': 'name: x\nenvironment: b\ntools: [gone]\nprompt: broken',
      'prompts/broken.yaml': 'name: broken\nsystem_prompt: []',
    })
    expect(faults.map((text) => text.split(' ').slice(0, 2).join(' '))).toEqual([
      'agents/x.yaml:3:9 tools.0:',
      'environments/b.yaml:1:1 name:',
      'environments/b.yaml:2:1 imagee:',
      'environments/b.yaml:3:14 resources.memory:',
      'environments/b.yaml:3:25 resources.cpu:',
      'prompts/broken.yaml:2:1 system_prompt:',
    ])
  })

  test('that does not exist, or has a folder of another name, says so', async () => {
    const gone = await loadRegistry(join(root, 'gone'), HOST)
    expect(gone.faults.map(formatFault)).toEqual([expect.stringContaining('there is no such folder')])
    expect(await faultsOf({ 'agent/a.yaml': 'name: a' })).toEqual([
      'agent/:1:1 is none of environments, agents, tools, prompts; did you mean "agents"?',
    ])
  })

  test('leaves other files alone', async () => {
    expect(await faultsOf({ 'README.md': '#', 'tools/x.py': '', 'agents/.draft.yaml': '{' })).toEqual([])
  })

  test.each([
    ['is too large', new Uint8Array(256 * 1024 + 1).fill(35), 'is larger than 256 KB'],
    ['is no text', Uint8Array.of(0xff, 0xfe, 0xff), 'is not UTF-8 text'],
    ['is nested too deeply', '['.repeat(20_000), 'Maximum call stack size exceeded'],
    ['multiplies itself', bomb(), 'cannot be read: Excessive alias count'],
  ])('refuses a file that %s', async (_, content, expected) => {
    const [fault] = await faultsOf({ 'prompts/p.yaml': content })
    expect(fault).toMatch(/^prompts\/p\.yaml:1:\d+ /)
    expect(fault).toContain(expected)
  })

  test('has at most 500 files', async () => {
    const files = Array.from({ length: 501 }, (_, index) => [
      `prompts/p${index}.yaml`,
      `name: p${index}\nsystem_prompt: x`,
    ])
    expect(await faultsOf(Object.fromEntries(files))).toEqual([
      expect.stringContaining('has more than 500 files'),
    ])
  })
})

function bomb(): string {
  const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]']
  for (let level = 1; level < 8; level++)
    lines.push(`a${level}: &a${level} [${`*a${level - 1}, `.repeat(10)}]`)
  return lines.join('\n')
}
