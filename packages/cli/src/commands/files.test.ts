import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { type Api, errorBody, runCli, SESSION, sendEvents, sendJson, startApi } from '../testing/run-cli.ts'

const { id } = SESSION
const FILES = `/api/sessions/${id}/files`
const ENTRY = { path: 'a/f.txt', type: 'file', size: 2048, modifiedAt: '2026-01-01T00:00:00.000Z' }
const STAT = { ...ENTRY, mode: '0644', etag: '"e"' }

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function api(routes: Parameters<typeof startApi>[0]): Promise<Api> {
  const server = await startApi(routes)
  closers.push(() => server.close())
  return server
}

function tempDir(): string {
  const dir = mkdtempSync(join(tmpdir(), 'ash-cli-'))
  closers.push(() => rmSync(dir, { recursive: true }))
  return dir
}

const files = (url: string, ...args: string[]) => runCli(['files', ...args, '--url', url])

describe('looking', () => {
  test('ls shows a folder, and with --recursive what is below', async () => {
    const page = { files: [ENTRY], truncated: true, source: 'live' }
    const { url } = await api({
      [`GET ${FILES}?path=a&recursive=false`]: (response) => sendJson(response, 200, page),
      [`GET ${FILES}?limit=5&recursive=true`]: (response) => sendJson(response, 200, page),
    })
    const shown = await files(url, 'ls', id, 'a')
    expect(shown.stdout).toMatch(/PATH .*\na\/f\.txt +file +2\.0 KB/)
    expect(shown.stderr).toContain('There are more')
    const json = await files(url, 'ls', id, '-r', '--limit', '5', '--json')
    expect(JSON.parse(json.stdout)).toEqual(page)
  })

  test('stat and find', async () => {
    const { url } = await api({
      [`GET ${FILES}/a/f.txt?stat=`]: (response) => sendJson(response, 200, STAT),
      [`GET ${FILES}/search?query=*.txt`]: (response) =>
        sendJson(response, 200, { files: [ENTRY], truncated: false }),
    })
    expect((await files(url, 'stat', id, 'a/f.txt')).stdout).toMatch(/mode +0644\n/)
    expect((await files(url, 'find', id, '*.txt')).stdout).toContain('a/f.txt')
  })

  test('watch prints a line for each change', async () => {
    const { url } = await api({
      [`GET ${FILES}?watch=true`]: (response) => {
        sendEvents(response, [
          ['ready', { entries: 1, truncated: false, limit: 9 }],
          ['created', { type: 'created', path: 'f\x1b[2J', size: 1 }],
        ])
      },
    })
    const onOutput = (text: string, kill: (signal: NodeJS.Signals) => void) => {
      if (text.includes('created')) kill('SIGINT')
    }
    const result = await runCli(['files', 'watch', id, '--url', url], { onOutput })
    expect(result.code).toBe(130)
    expect(result.stdout).toContain('created')
    expect(result.stdout).not.toContain('\x1b[2J')
  })

  test('link prints the address alone', async () => {
    const made = { url: 'http://host/files/signed/t', expiresAt: '2026-01-01T00:00:00.000Z' }
    const { url, requests } = await api({
      [`POST ${FILES}/links`]: (response) => sendJson(response, 200, made),
    })
    expect((await files(url, 'link', id, 'f', '--put', '--expires', '10m')).stdout).toBe(`${made.url}\n`)
    expect(requests[0]?.json).toEqual({ path: 'f', expiresIn: 600, method: 'PUT' })
  })
})

describe('transfers', () => {
  const bytes = (content: string) => ({
    [`GET ${FILES}/a/f.txt?stat=`]: (response: Parameters<typeof sendJson>[0]) =>
      sendJson(response, 200, STAT),
    [`GET ${FILES}/a/f.txt`]: (response: Parameters<typeof sendJson>[0]) =>
      response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(content),
  })

  test('get saves a file, or writes it to stdout', async () => {
    const { url } = await api(bytes('content'))
    const dir = tempDir()
    const saved = await files(url, 'get', id, 'a/f.txt', `${dir}/`, '--json')
    expect(JSON.parse(saved.stdout)).toEqual({ path: 'a/f.txt', size: 7, savedTo: `${dir}/f.txt` })
    expect(readFileSync(join(dir, 'f.txt'), 'utf8')).toBe('content')
    expect((await files(url, 'get', id, 'a/f.txt', '-')).stdout).toBe('content')
    expect((await files(url, 'get', id, 'a/f.txt', '-', '--json')).code).toBe(2)
  })

  test('get of what is not there leaves no file', async () => {
    const { url } = await api({
      [`GET ${FILES}/none?stat=`]: (response) =>
        sendJson(response, 404, errorBody('file_not_found', 404, '"none" does not exist')),
    })
    const target = join(tempDir(), 'none')
    expect((await files(url, 'get', id, 'none', target)).code).toBe(5)
    expect(existsSync(target)).toBe(false)
  })

  test('put sends a local file or stdin', async () => {
    const written = { path: 'in/f', size: 4 }
    const reply = (response: Parameters<typeof sendJson>[0]) => sendJson(response, 200, written)
    const { url, requests } = await api({
      [`PUT ${FILES}/data.csv`]: reply,
      [`PUT ${FILES}/in/data.csv?mode=755`]: reply,
      [`PUT ${FILES}/x`]: reply,
    })
    const file = join(tempDir(), 'data.csv')
    writeFileSync(file, 'text')
    expect((await files(url, 'put', id, file)).stdout).toContain('Wrote in/f')
    expect((await files(url, 'put', id, file, 'in/', '--mode', '755')).code).toBe(0)
    expect((await runCli(['files', 'put', id, '-', 'x', '--url', url], { input: 'piped' })).code).toBe(0)
    expect(requests.map(({ json }) => json)).toEqual(['text', 'text', 'piped'])
    expect((await files(url, 'put', id, '-')).code).toBe(2)
    expect((await files(url, 'put', id, '/no/such')).code).toBe(2)
  })
})

test('mkdir, mv, cp, rm and chmod ask for what their words say', async () => {
  const reply = (response: Parameters<typeof sendJson>[0]) => sendJson(response, 200, STAT)
  const { url, requests } = await api({
    [`POST ${FILES}/mkdir`]: reply,
    [`POST ${FILES}/move`]: reply,
    [`POST ${FILES}/copy`]: reply,
    [`POST ${FILES}/chmod`]: reply,
    [`DELETE ${FILES}/a?recursive=true`]: reply,
    [`DELETE ${FILES}/a?recursive=false`]: reply,
  })
  for (const args of [
    ['mkdir', id, '-p', 'a/b'],
    ['mv', id, 'a/f', 'b/'],
    ['cp', id, 'a', 'b', '--force'],
    ['chmod', id, '755', 'a'],
    ['rm', id, 'a'],
    ['rm', id, '-r', 'a'],
  ])
    expect((await files(url, ...args)).code).toBe(0)
  expect(requests.map(({ json }) => json).slice(0, 4)).toEqual([
    { path: 'a/b', parents: true },
    { from: 'a/f', to: 'b/f', overwrite: false },
    { from: 'a', to: 'b', overwrite: true },
    { path: 'a', mode: '755' },
  ])
  expect(requests.slice(4).map(({ url: path }) => path)).toEqual([
    `${FILES}/a?recursive=false`,
    `${FILES}/a?recursive=true`,
  ])
})
