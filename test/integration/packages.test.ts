import { AshClient, isAshError } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PackageIndex, startPackageIndex } from './support/package-index.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let index: PackageIndex
let client: AshClient
beforeAll(async () => {
  index = await startPackageIndex()
  server = await startTestServer({
    env: { ASH_PIP_INDEX_URL: index.pipUrl, ASH_NPM_REGISTRY: index.npmUrl },
  })
  client = server.client
})
afterAll(async () => {
  await server.close()
  await index.close()
})

async function makeSession(network: string[] | 'none' = [index.host]): Promise<string> {
  const { id } = await client.sessions.create({ template: 'python', network })
  return id
}

const run = async (id: string, code: string, language: 'python' | 'javascript' = 'python') =>
  client.sessions.execute(id, { code, language })

const codeOf = (error: unknown) => (isAshError(error) ? error.code : String(error))

test('packages are installed into the environment of a session, kernels see them after a restart', async () => {
  const id = await makeSession()
  expect(await client.packages.list(id)).toEqual({ pip: [], npm: [] })
  expect((await run(id, 'import ash_demo')).status).toBe('failed')

  const install = await client.packages.install(id, { pip: ['ash-demo==1.0.0'], npm: ['ash-demo'] })
  expect(install).toMatchObject({ status: 'completed', warnings: [], restartKernels: true })

  const { pip, npm } = await client.packages.list(id)
  expect(pip).toContainEqual({ name: 'ash-demo', version: '1.0.0' })
  expect(npm).toContainEqual({ name: 'ash-demo', version: '1.0.0' })
  await client.kernels.restart(id)
  expect(await run(id, 'import ash_demo; ash_demo.WORD')).toMatchObject({ result: 'from pip' })
  const { stdout } = await client.sessions.exec(id, { command: 'ash-demo' })
  expect(stdout.trim()).toMatch(/from (pip|npm)/)
  const log = await client.sessions.events(id, { types: ['log'] })
  const sources = log.events.map(({ data }) => (data as { source: string }).source)
  expect(sources).toEqual(expect.arrayContaining(['pip', 'npm']))
})

test('what is installed is still there after the sandbox was given up, and in a fork', async () => {
  const id = await makeSession()
  await client.packages.install(id, { pip: ['ash-demo'] })
  await client.sessions.stop(id)
  const fork = await client.sessions.fork(id)
  for (const each of [id, fork.id])
    expect(await run(each, 'import ash_demo; ash_demo.WORD')).toMatchObject({ result: 'from pip' })
})

test("a conflict fails with the resolver's words, and changes nothing", async () => {
  const id = await makeSession()
  const error = await client.packages
    .install(id, { pip: ['ash-demo==1.0.0', 'ash-demo<1'] })
    .catch((thrown: unknown) => thrown)
  expect(codeOf(error)).toBe('setup_failed')
  expect(String(error)).toMatch(/Cannot install ash-demo.*conflicting dependencies/s)
  const { pip, install } = await client.packages.list(id)
  expect(pip.map(({ name }) => name)).not.toContain('ash-demo')
  expect(install).toMatchObject({ status: 'failed', error: { code: 'setup_failed' } })
})

const BREAK_VENV = `d=$(ls -d "$HOME"/.venv/lib/python3*/site-packages)/broken-1.0.dist-info && mkdir "$d" &&
printf 'Metadata-Version: 2.1\\nName: broken\\nVersion: 1.0\\nRequires-Dist: nowhere\\n' > "$d/METADATA"`

test('what does not fit together afterwards is a warning', async () => {
  const id = await makeSession()
  await client.packages.install(id, { pip: ['ash-demo'] })
  expect(await client.sessions.exec(id, { command: BREAK_VENV })).toMatchObject({ exitCode: 0 })
  const { warnings } = await client.packages.install(id, { pip: ['ash-demo'] })
  expect(warnings.join('\n')).toContain('nowhere')
})

test('one installation at a time; async answers at once', async () => {
  const id = await makeSession()
  const first = await client.packages.install(id, { pip: ['ash-demo'], async: true })
  expect(first.status).toBe('running')
  const second = await client.packages.install(id, { pip: ['ash-demo'] }).catch(codeOf)
  expect(second).toBe('install_in_progress')
  await expect
    .poll(async () => (await client.packages.list(id)).install?.status, { timeout: 60_000, interval: 500 })
    .toBe('completed')
})

test('the network policy of the session decides where packages come from', async () => {
  const id = await makeSession('none')
  const error = await client.packages.install(id, { pip: ['ash-demo'] }).catch((thrown: unknown) => thrown)
  expect(codeOf(error)).toBe('setup_failed')
  expect(String(error)).toContain(index.host)
})

test.each([['--index-url=http://evil'], ['ash-demo; touch /tmp/x'], ['git+https://example.com/x'], ["a'b"]])(
  '%s is no package',
  async (spec) => {
    const id = await makeSession()
    expect(await client.packages.install(id, { pip: [spec] }).catch(codeOf)).toBe('validation_failed')
    expect(await client.packages.install(id, {}).catch(codeOf)).toBe('validation_failed')
  },
)

test('another key sees nothing of it, an ended session takes nothing', async () => {
  const stranger = new AshClient({ baseUrl: server.url, apiKey: 'wrong', retries: 0 })
  const id = await makeSession()
  expect(await stranger.packages.list(id).catch(codeOf)).toBe('unauthorized')
  await client.sessions.end(id)
  expect(await client.packages.install(id, { pip: ['ash-demo'] }).catch(codeOf)).toBe('session_ended')
})
