import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { scripted } from './support/conversation.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const SHIPPED = resolve(import.meta.dirname, '../../registry')

let registryDir: string
let server: TestServer
beforeAll(async () => {
  registryDir = await mkdtemp(join(tmpdir(), 'ash-registry-'))
  await cp(SHIPPED, registryDir, { recursive: true })
  server = await startTestServer({ env: { ASH_REGISTRY_DIR: registryDir } })
})
afterAll(async () => {
  await server.close()
  await rm(registryDir, { recursive: true })
})

const callTool = (name: string, input: object) => ({ tool: `mcp__tools__${name}`, input })

test('the environments that are shipped are templates', async () => {
  const template = await server.client.templates.get('python-basic')
  expect(template).toMatchObject({
    languages: ['python', 'shell'],
    limits: { memoryMb: 512, cpus: 0.5 },
    network: 'none',
    timeout: 300_000,
    isBuiltIn: false,
  })
  expect(await server.client.templates.get('python-datascience')).toMatchObject({
    env: { MPLBACKEND: '***' },
  })
})

test('an agent that is only YAML has its tools, and the scripts run inside', async () => {
  const { client, model } = server
  const session = await client.sessions.create({ agent: 'echo' })
  expect(session).toMatchObject({ template: 'python-basic', agentVersion: 1 })
  const count = scripted(callTool('word-count', { text: 'to be or not\nto be' }), { text: '{{toolResult}}' })
  const answer = await client.sessions.send(session.id, count).text()
  expect(JSON.parse(answer)).toEqual({ lines: 2, words: 6, characters: 18 })
  const weather = scripted(callTool('weather-mock', { city: 'Paris' }), { text: '{{toolResult}}' })
  expect(await client.sessions.send(session.id, weather).text()).toContain('"made_up": true')

  const body = JSON.stringify(model.requests.findLast(({ prompts }) => prompts.includes(count))?.body)
  expect(body).toContain('say how many words it has')
  const { tools } = JSON.parse(body) as { tools: { name: string; input_schema: object }[] }
  // The agent SDK adds one that nobody may call.
  const names = tools.map(({ name }) => name).filter((name) => name !== 'DeferredToolPlaceholder')
  expect(names.sort()).toEqual(['mcp__tools__weather-mock', 'mcp__tools__word-count'])
  expect(tools.find(({ name }) => name.endsWith('word-count'))?.input_schema).toMatchObject({
    required: ['text'],
  })
  await client.sessions.end(session.id)
})

test('a tool that the agent does not list is not there', async () => {
  const { client } = server
  const session = await client.sessions.create({ agent: 'echo' })
  const prompt = scripted(
    { tool: 'Bash', input: { command: 'touch made', description: 'x' } },
    { text: 'end' },
  )
  expect(await client.sessions.send(session.id, prompt).text()).toBe('end')
  const { files } = await client.files.list(session.id)
  expect(files.map(({ path }) => path)).not.toContain('made')
  await client.sessions.end(session.id)
})

test('the files are the truth at each start, and the same again changes nothing', async () => {
  const { client } = server
  const before = await client.templates.get('python-datascience')
  await client.templates.put({ name: 'python-basic', languages: ['shell'], network: 'open' })
  await server.stop()
  await writeFile(join(registryDir, 'prompts/analyst.yaml'), 'name: analyst\nsystem_prompt: Be brief.')
  await server.start()
  const after = server.client
  expect(await after.templates.get('python-basic')).toMatchObject({
    languages: ['python', 'shell'],
    network: 'none',
  })
  expect(await after.templates.get('python-datascience')).toEqual(before)
  expect((await after.agents.get('echo')).version).toBe(1)
  expect((await after.agents.get('analyst')).version).toBe(2)
})

test('a registry with faults keeps the server from starting, and the log has all of them', async () => {
  await server.stop()
  await writeFile(join(registryDir, 'environments/bad.yaml'), 'name: bad\nresources:\n  memmory: 512Mi\n')
  await writeFile(join(registryDir, 'agents/bad.yaml'), 'name: bad\nprompt: analist\ntools: [Bahs]\n')
  await expect(server.start()).rejects.toThrow()
  const log = server.log()
  expect(log).toContain('environments/bad.yaml:3:3 resources.memmory: is not known here; did you mean')
  expect(log).toContain('agents/bad.yaml:2:1 prompt: there is no prompt')
  expect(log).toContain('agents/bad.yaml:3:9 tools.0: there is no tool')
  expect(log).toContain('has 3 faults')
})
