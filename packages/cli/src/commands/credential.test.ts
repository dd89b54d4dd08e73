import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterEach, expect, test } from 'vitest'
import { type Api, BIN, runCli, sendJson, startApi } from '../testing/run-cli.ts'

const CREDENTIAL = {
  name: 'github',
  hosts: ['api.github.com', 'uploads.github.com'],
  scheme: { type: 'bearer' },
  createdAt: '2026-01-01T00:00:00.000Z',
  updatedAt: '2026-01-02T00:00:00.000Z',
}
const ADD = ['credential', 'add', 'github', '--host', 'api.github.com']

let api: Api | undefined
afterEach(() => api?.close())

async function start(): Promise<Api> {
  api = await startApi({
    'POST /api/credentials': (response) => sendJson(response, 201, { credential: CREDENTIAL }),
    'GET /api/credentials': (response) => sendJson(response, 200, { credentials: [CREDENTIAL] }),
    'DELETE /api/credentials/github': (response) => sendJson(response, 200, { ok: true }),
  })
  return api
}

test('add takes the secret from stdin, without the line break at its end', async () => {
  const { url, requests } = await start()
  const result = await runCli([...ADD, '--host', 'uploads.github.com', '--url', url], { input: 'hunter2\n' })
  expect(result).toMatchObject({ code: 0, stderr: '' })
  expect(result.stdout).toContain('ash session create <agent> --credential github')
  expect(requests[0]?.json).toEqual({
    name: 'github',
    hosts: ['api.github.com', 'uploads.github.com'],
    scheme: { type: 'bearer' },
    secret: 'hunter2',
  })
})

test.each([
  ['bearer', { type: 'bearer' }],
  ['header:X-Api-Key', { type: 'header', name: 'X-Api-Key' }],
  ['basic:me', { type: 'basic', username: 'me' }],
  ['query:key', { type: 'query', name: 'key' }],
])('add takes the scheme %s, and the secret from a variable', async (scheme, sent) => {
  const { url, requests } = await start()
  const args = [...ADD, '--scheme', scheme, '--from-env', 'TOKEN', '--json', '--url', url]
  const result = await runCli(args, { env: { TOKEN: 'hunter2' } })
  expect(result.code).toBe(0)
  expect(JSON.parse(result.stdout)).toEqual({ credential: CREDENTIAL })
  expect(requests[0]?.json).toMatchObject({ scheme: sent, secret: 'hunter2' })
})

test('add reads from a terminal without showing what is typed', async () => {
  const { url, requests } = await start()
  const command = `${process.execPath} --conditions=development ${BIN} ${ADD.join(' ')} --url ${url}`
  const terminal = spawn('script', ['-qec', command, '/dev/null'], { env: { PATH: process.env.PATH } })
  let stdout = ''
  terminal.stdout.on('data', (chunk) => {
    const isAsked = !stdout.includes('not shown')
    stdout += chunk
    if (isAsked && stdout.includes('not shown')) terminal.stdin.write('hunter2\r')
  })
  await once(terminal, 'close')
  expect(stdout).toContain('not shown')
  expect(stdout).toContain('Stored')
  expect(stdout).not.toContain('hunter2')
  expect(requests[0]?.json).toMatchObject({ secret: 'hunter2' })
})

test.each([
  [['credential', 'add', 'github'], ''],
  [ADD, ''],
  [[...ADD, '--from-env', 'NOT_SET'], 'hunter2'],
  [[...ADD, '--scheme', 'digest'], 'hunter2'],
  [[...ADD, '--scheme', 'header'], 'hunter2'],
  [[...ADD, 'an-argument'], 'hunter2'],
])('wrong usage %j is 2, and the secret is not repeated', async (args, input) => {
  const { url, requests } = await start()
  const result = await runCli([...args, '--url', url], { input })
  expect(result).toMatchObject({ code: 2, stdout: '' })
  expect(result.stderr).not.toContain('hunter2')
  expect(requests).toEqual([])
})

test('list shows everything but secrets, delete deletes', async () => {
  const { url } = await start()
  const list = await runCli(['credential', 'list', '--url', url])
  expect(list.stdout).toMatch(
    /^NAME +HOSTS +SCHEME +UPDATED\ngithub +api.github.com uploads.github.com +bearer/,
  )
  const deleted = await runCli(['credential', 'delete', 'github', '--json', '--url', url])
  expect(JSON.parse(deleted.stdout)).toEqual({ deleted: 'github' })
  const missing = await runCli(['credential', 'delete', 'gitlab', '--url', url])
  expect(missing.code).toBe(5)
})
