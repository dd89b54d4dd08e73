import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadRegistry } from './load-registry.ts'

const TOOLS: Record<string, string> = {
  'count.py': 'name: count\ndescription: Counts\nscript: count.py',
  words: 'name: words\nexamples: [one two]\nscript: |\n  wc -w',
  slow: 'name: slow\ntimeout: 0.2\nscript: |\n  echo before\n  sleep 60 & wait',
  endless: 'name: endless\nscript: |\n  sleep 60',
  broken: 'name: broken\nscript: |\n  echo seen; echo why >&2; exit 3',
  large: 'name: large\nscript: |\n  yes | head -c 2000000',
  leaver: 'name: leaver\nscript: |\n  sleep 60 &\n  echo left',
}

const root = mkdtempSync(join(tmpdir(), 'ash-tools-'))
let server: ChildProcessWithoutNullStreams
let replies: AsyncIterator<string>

/** The files that an agent with these tools is deployed with, and its server as the agent SDK starts it. */
beforeAll(async () => {
  mkdirSync(join(root, 'registry/tools'), { recursive: true })
  for (const [name, text] of Object.entries(TOOLS))
    writeFileSync(join(root, `registry/tools/${name}.yaml`), text)
  const python = 'import json, sys\nprint(json.load(sys.stdin)["text"].count("e"))\n'
  writeFileSync(join(root, 'registry/tools/count.py'), python)
  const tools = `[${Object.keys(TOOLS)
    .map((name) => name.replace('.py', ''))
    .join(', ')}]`
  mkdirSync(join(root, 'registry/agents'))
  writeFileSync(join(root, 'registry/agents/a.yaml'), `name: a\nsystem_prompt: x\ntools: ${tools}`)
  const { registry, faults } = await loadRegistry(join(root, 'registry'), {
    provider: 'process',
    limits: DEFAULT_LIMITS,
  })
  expect(faults).toEqual([])
  const request = registry?.agents[0]?.request
  if (!request) throw new Error('the registry has no agent')
  for await (const { path, isExecutable, content } of request.entries) {
    mkdirSync(join(root, dirname(path)), { recursive: true })
    const mode = isExecutable ? 0o755 : 0o644
    writeFileSync(join(root, path), Buffer.concat(await Array.fromAsync(content)), { mode })
  }
  expect(request.config?.mcpServers).toMatchObject({ tools: { command: 'node', args: ['.ash/tools.mjs'] } })
  server = spawn('node', ['.ash/tools.mjs'], { cwd: root, env: { PATH: process.env.PATH ?? '' } })
  replies = createInterface({ input: server.stdout })[Symbol.asyncIterator]()
})
afterAll(async () => {
  const exited = once(server, 'exit')
  server.stdin.end()
  expect(await exited).toEqual([0, null])
  rmSync(root, { recursive: true })
})

let lastId = 0
const send = (message: object) => server.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)

async function request(method: string, params: object = {}): Promise<{ result?: unknown; error?: unknown }> {
  const id = ++lastId
  send({ id, method, params })
  for (;;) {
    const { value, done } = await replies.next()
    if (done) throw new Error('the server has ended')
    const reply = JSON.parse(value)
    if (reply.id === id) return reply
  }
}

const call = async (name: string, input: object = {}) =>
  (await request('tools/call', { name, arguments: input })).result
const text = (value: unknown) => ({ content: [{ type: 'text', text: value }] })

test('it introduces itself and lists its tools', async () => {
  const hello = await request('initialize', { protocolVersion: '2025-06-18', capabilities: {} })
  expect(hello.result).toMatchObject({ protocolVersion: '2025-06-18', capabilities: { tools: {} } })
  send({ method: 'notifications/initialized' })
  const { result } = await request('tools/list')
  const inputSchema = { type: 'object' }
  expect(result).toMatchObject({ tools: { length: Object.keys(TOOLS).length } })
  expect((result as { tools: unknown[] }).tools.slice(0, 2)).toEqual([
    { name: 'count', description: 'Counts', inputSchema },
    { name: 'words', description: 'words\n\nExamples:\n- one two', inputSchema },
  ])
})

test('a script gets its arguments as JSON, and what it prints is the result', async () => {
  expect(await call('count', { text: 'three eels' })).toEqual(text('4\n'))
  expect(await call('words', { text: 'x' })).toEqual(text(expect.stringMatching(/^\s*1\n$/)))
})

test('a script that fails is a result that says so', async () => {
  expect(await call('broken')).toEqual({ ...text('Ended with exit code 3. seen\n\nwhy'), isError: true })
  expect(await call('gone')).toEqual({ ...text('There is no such tool'), isError: true })
})

test('a script that takes too long is stopped with everything it started', async () => {
  expect(await call('slow')).toEqual({ ...text('Stopped after 0.2 s. before'), isError: true })
})

test('what a script leaves running does not hold up its result', async () => {
  expect(await call('leaver')).toEqual(text('left\n'))
})

test('more output than fits is left out', async () => {
  const result = await call('large')
  expect(JSON.stringify(result).length).toBeLessThan(2_000_000)
  expect(JSON.stringify(result)).toContain('951424 more bytes were left out')
})

test('a call that is cancelled is killed', async () => {
  const pending = call('endless')
  send({ method: 'notifications/cancelled', params: { requestId: lastId } })
  expect(await pending).toEqual({ ...text('Ended with SIGKILL.'), isError: true })
})

test('what it does not understand is an error', async () => {
  expect((await request('resources/list')).error).toMatchObject({ code: -32601 })
  expect((await request('constructor')).error).toMatchObject({ code: -32601 })
  server.stdin.write('not json\n')
  expect((await request('ping')).result).toEqual({})
})
