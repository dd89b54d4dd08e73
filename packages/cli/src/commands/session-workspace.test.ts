import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import {
  type Api,
  BIN,
  errorBody,
  runCli,
  runProcess,
  SESSION,
  sendJson,
  startApi,
} from '../testing/run-cli.ts'

const PATH = `/api/sessions/${SESSION.id}/workspace`
const ARCHIVE = Buffer.of(0x1f, 0x8b, 0xff, 0x00)
const REPLY = { session: SESSION, checkpoint: { id: 'c1' } }

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

const download = () =>
  api({
    [`GET ${PATH}`]: (response) =>
      response.writeHead(200, { 'content-type': 'application/gzip' }).end(ARCHIVE),
    [`GET ${PATH}?checkpointId=c`]: (response) =>
      response.writeHead(200, { 'content-type': 'application/gzip' }).end(Buffer.concat([ARCHIVE, ARCHIVE])),
  })

describe('download', () => {
  test('saves the archive, byte for byte', async () => {
    const { url } = await download()
    const file = join(tempDir(), 'out.tar.gz')
    const args = ['session', 'download', SESSION.id, '--url', url, '-o', file]
    const result = await runCli([...args, '--json'])
    expect(JSON.parse(result.stdout)).toEqual({ savedTo: file, size: 4 })
    expect(readFileSync(file).equals(ARCHIVE)).toBe(true)
    await runCli([...args, '--checkpoint', 'c'])
    expect(readFileSync(file)).toHaveLength(8)
  })

  test('writes to stdout for another program, and says nothing there', async () => {
    const { url } = await download()
    const command = `"$0" --conditions=development "$1" session download "$2" --url "$3" -o - | od -An -tx1`
    const result = await runProcess('sh', ['-c', command, process.execPath, BIN, SESSION.id, url], {})
    expect(result.stdout.trim()).toBe('1f 8b ff 00')
  })

  test('shows its bytes on a terminal', async () => {
    const { url } = await download()
    const file = join(tempDir(), 'out.tar.gz')
    const command = `${process.execPath} --conditions=development ${BIN} session download ${SESSION.id} --url ${url} -o ${file}`
    const { stdout } = await runProcess('script', ['-qec', command, '/dev/null'], { env: { TERM: 'xterm' } })
    expect(stdout).toContain('Downloaded 4 bytes')
    expect(stdout).toContain('Saved to')
  })

  test('that breaks leaves no file behind', async () => {
    const { url } = await api({
      [`GET ${PATH}`]: (response) => {
        response.writeHead(200, { 'content-type': 'application/gzip' })
        response.write(ARCHIVE, () => response.destroy())
      },
    })
    const file = join(tempDir(), 'out.tar.gz')
    const result = await runCli(['session', 'download', SESSION.id, '--url', url, '-o', file])
    expect(result).toMatchObject({ code: 3, stdout: '' })
    expect(existsSync(file)).toBe(false)
  })

  test('into a folder that is not there fails at once', async () => {
    const { url } = await api({
      [`GET ${PATH}`]: (response) =>
        response.writeHead(200, { 'content-type': 'application/gzip' }).write(ARCHIVE),
    })
    const file = join(tempDir(), 'none', 'out.tar.gz')
    const result = await runCli(['session', 'download', SESSION.id, '--url', url, '-o', file])
    expect(result).toMatchObject({ code: 1, stdout: '' })
    expect(result.stderr).toContain('ENOENT')
  })

  test('that is refused leaves an existing file as it was', async () => {
    const { url } = await api({})
    const file = join(tempDir(), 'out.tar.gz')
    writeFileSync(file, 'old')
    const result = await runCli(['session', 'download', SESSION.id, '--url', url, '-o', file])
    expect(result.code).toBe(5)
    expect(readFileSync(file, 'utf8')).toBe('old')
  })

  test('to a device leaves the device', async () => {
    const { url } = await api({
      [`GET ${PATH}`]: (response) => {
        response.writeHead(200, { 'content-type': 'application/gzip' })
        response.write(ARCHIVE, () => response.destroy())
      },
    })
    await runCli(['session', 'download', SESSION.id, '--url', url, '-o', '/dev/null'])
    expect(existsSync('/dev/null')).toBe(true)
  })

  test('mixes no archive with JSON', async () => {
    const { url, requests } = await download()
    const result = await runCli(['session', 'download', SESSION.id, '--url', url, '-o', '-', '--json'])
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(requests).toEqual([])
  })
})

const upload = () =>
  api({
    [`POST ${PATH}?replace=false`]: (response) => sendJson(response, 200, REPLY),
    [`POST ${PATH}?replace=true`]: (response) => sendJson(response, 200, REPLY),
  })

describe('upload', () => {
  test('sends a file, over what is there or instead of it', async () => {
    const { url, requests } = await upload()
    const file = join(tempDir(), 'in.tar')
    writeFileSync(file, 'archive')
    const over = await runCli(['session', 'upload', SESSION.id, file, '--url', url])
    expect(over).toMatchObject({ code: 0, stderr: '' })
    expect(over.stdout).toContain(`has taken in ${file}\n  Checkpoint c1`)
    const instead = await runCli(['session', 'upload', SESSION.id, file, '--replace', '--json', '--url', url])
    expect(JSON.parse(instead.stdout)).toEqual(REPLY)
    expect(requests.map((request) => [request.url, request.json])).toEqual([
      [`${PATH}?replace=false`, 'archive'],
      [`${PATH}?replace=true`, 'archive'],
    ])
  })

  test('sends what stdin holds', async () => {
    const { url, requests } = await upload()
    const result = await runCli(['session', 'upload', SESSION.id, '-', '--url', url], { input: 'piped' })
    expect(result.code).toBe(0)
    expect(requests[0]?.json).toBe('piped')
  })

  test('during a turn says what to do', async () => {
    const { url } = await api({
      [`POST ${PATH}?replace=false`]: (response) =>
        sendJson(response, 409, errorBody('turn_in_progress', 409, 'A turn runs')),
    })
    const result = await runCli(['session', 'upload', SESSION.id, '-', '--url', url], { input: 'piped' })
    expect(result).toMatchObject({ code: 1, stdout: '' })
    expect(result.stderr).toBe(
      'error: A turn runs\n  next: Wait for it, or stop it: ash session interrupt <id>\n',
    )
  })

  test.each([
    ['a folder', () => tempDir()],
    ['nothing', () => join(tempDir(), 'missing.tar')],
  ])('of %s is wrong usage and says how to make an archive', async (_, path) => {
    const { url, requests } = await upload()
    const result = await runCli(['session', 'upload', SESSION.id, path(), '--url', url])
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(result.stderr).toContain('tar -cz -C <folder> . | ash session upload <id> -')
    expect(requests).toEqual([])
  })
})
