import { isAshError } from '@ash-ai/shared'
import { afterEach, describe, expect, test } from 'vitest'
import { AshClient } from './client.ts'
import { frame, openSSE, sendJson, startServer, type TestServer } from './testing/http-server.ts'

let server: TestServer | undefined
afterEach(async () => {
  await server?.close()
  server = undefined
})

async function serve(answer: Parameters<typeof startServer>[0]) {
  server = await startServer(answer)
  return { files: new AshClient({ baseUrl: server.url, retries: 0 }).files, requests: server.requests }
}
const STAT = { path: 'f', type: 'file', size: 1, modifiedAt: '2026-01-01T00:00:00.000Z' }

test('all pages are listed, each when it is needed', async () => {
  const pages = [
    { files: [{ path: 'a' }, { path: 'b' }], truncated: true, nextCursor: 'n/1', source: 'live' },
    { files: [{ path: 'c' }], truncated: false, source: 'live' },
  ]
  const { files, requests } = await serve((_, response, index) => sendJson(response, 200, pages[index]))
  const all = await Array.fromAsync(files.listAll('s', { path: 'd', recursive: false, limit: 2 }))
  expect(all.map(({ path }) => path)).toEqual(['a', 'b', 'c'])
  expect(requests.map(({ url }) => url)).toEqual([
    '/api/sessions/s/files?path=d&limit=2&recursive=false',
    '/api/sessions/s/files?path=d&limit=2&cursor=n%2F1&recursive=false',
  ])
})

test('a part of a file is asked for as a range', async () => {
  const { files, requests } = await serve((_, response) =>
    response.writeHead(206, { 'content-type': 'application/octet-stream' }).end('part'),
  )
  for (const range of [{ start: 2, end: 5 }, { start: 3 }, { end: 4 }, {}]) {
    const parts = await Array.fromAsync(await files.readStream('s', 'a/ü', range))
    expect(Buffer.concat(parts).toString()).toBe('part')
  }
  expect(requests.map(({ headers }) => headers.range)).toEqual([
    'bytes=2-5',
    'bytes=3-',
    'bytes=0-4',
    undefined,
  ])
  expect(requests[0]?.url).toBe('/api/sessions/s/files/a/%C3%BC')
})

test('text, bytes and streams are written, with mode and conditions', async () => {
  const { files, requests } = await serve((_, response) => sendJson(response, 200, { path: 'f', size: 1 }))
  await files.write('s', 'f', 'text', { mode: '0755', ifMatch: '"e"' })
  await files.write('s', 'f', new Uint8Array([65, 66]), { onlyNew: true })
  await files.write('s', 'f', ReadableStream.from([new Uint8Array([67]), new Uint8Array([68])]))
  expect(requests.map(({ body }) => body)).toEqual(['text', 'AB', 'CD'])
  expect(requests[0]?.url).toBe('/api/sessions/s/files/f?mode=0755')
  expect(requests.map(({ headers }) => [headers['if-match'], headers['if-none-match']])).toEqual([
    ['"e"', undefined],
    [undefined, '*'],
    [undefined, undefined],
  ])
})

test('an upload is a form with a part for each file', async () => {
  const { files, requests } = await serve((_, response) => sendJson(response, 200, { files: [] }))
  async function* slowly() {
    yield new TextEncoder().encode('be')
    yield new TextEncoder().encode('ta')
  }
  await files.upload(
    's',
    [
      { name: 'a"\r\n.txt', content: 'alpha' },
      { name: 'b', content: slowly() },
    ],
    { path: 'in' },
  )
  const [request] = requests
  expect(request?.url).toBe('/api/sessions/s/files/upload?path=in')
  const form = await new Response(request?.body, {
    headers: { 'content-type': String(request?.headers['content-type']) },
  }).formData()
  const sent = form.getAll('files') as unknown as { name: string; text(): Promise<string> }[]
  expect(await Promise.all(sent.map((file) => file.text()))).toEqual(['alpha', 'beta'])
  expect(request?.body).toContain('filename="a%22%0D%0A.txt"')
})

test('changes say what they want', async () => {
  const { files, requests } = await serve((_, response) => sendJson(response, 200, { ...STAT, url: '/x' }))
  await files.stat('s', 'f', { checkpointId: 'c' })
  await files.mkdir('s', 'a/b', { parents: true })
  await files.move('s', { from: 'a', to: 'b', overwrite: true })
  await files.copy('s', { from: 'a', to: 'b' })
  await files.chmod('s', 'a', '755')
  await files.delete('s', 'a', { recursive: false })
  await files.link('s', { path: 'a', method: 'PUT' })
  expect(requests.map(({ method, url, body }) => `${method} ${url} ${body}`)).toEqual([
    'GET /api/sessions/s/files/f?stat=&checkpointId=c ',
    'POST /api/sessions/s/files/mkdir {"path":"a/b","parents":true}',
    'POST /api/sessions/s/files/move {"from":"a","to":"b","overwrite":true}',
    'POST /api/sessions/s/files/copy {"from":"a","to":"b"}',
    'POST /api/sessions/s/files/chmod {"path":"a","mode":"755"}',
    'DELETE /api/sessions/s/files/a?recursive=false ',
    'POST /api/sessions/s/files/links {"path":"a","method":"PUT"}',
  ])
})

describe('a watch', () => {
  test('gives events until the loop is left, and lets go of the connection', async () => {
    const closed = Promise.withResolvers<void>()
    const { files, requests } = await serve((_, response) => {
      openSSE(response).on('close', () => closed.resolve())
      response.write(frame('1', 'ready', { entries: 0, truncated: false, limit: 9 }))
      response.write(frame('2', 'something-new', {}))
      response.write(frame('3', 'created', { type: 'created', path: 'f', size: 1 }))
    })
    const seen: string[] = []
    for await (const event of files.watch('s', { path: 'd' })) {
      seen.push(event.type)
      if (event.type === 'created') break
    }
    expect(seen).toEqual(['ready', 'created'])
    expect(requests[0]?.url).toBe('/api/sessions/s/files?path=d&watch=true')
    await closed.promise
  })

  test('throws what ended it, and where the connection is lost', async () => {
    const { files } = await serve((_, response, index) => {
      openSSE(response)
      if (index === 0) response.end(frame('1', 'error', { code: 'session_ended', error: 'over' }))
      else response.write(frame('1', 'ready', {}), () => response.destroy())
    })
    await expect(Array.fromAsync(files.watch('s'))).rejects.toSatisfy((error) =>
      isAshError(error, 'session_ended'),
    )
    await expect(Array.fromAsync(files.watch('s'))).rejects.toMatchObject({ reason: 'lost' })
  })
})
