import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { AshClient, Session } from '@ash-ai/sdk'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { startBrowser } from './support/browser.ts'
import { type HttpsFront, startHttpsFront } from './support/https-front.ts'
import { APP_PORT, createAppSession, serve } from './support/inside-programs.ts'
import { startTap } from './support/tap.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'
import { messageModule, style, VITE, viteArchive } from './support/vite-project.ts'

const HOSTILE_PAGE = join(import.meta.dirname, 'support/hostile-page.html')
const VITE_PORT = 5173
const DOMAIN = 'preview.test'
/** So that nothing but where a request comes from keeps pages from the API. */
const ASH_KEYS = 'off'
/** Below those that the system gives out. */
const FRONTED_PORT = 20_000 + (process.pid % 10_000)

let browser: Browser
let server: TestServer
let front: HttpsFront
/** With a domain for its previews. */
let fronted: TestServer
beforeAll(async () => {
  browser = await startBrowser([`--host-resolver-rules=MAP *.${DOMAIN} 127.0.0.1`])
  server = await startTestServer({ env: { ASH_KEYS } })
  front = await startHttpsFront(FRONTED_PORT)
  const host = `https://${DOMAIN}:${front.port}`
  fronted = await startTestServer({
    env: { ASH_KEYS, ASH_PREVIEW_PORT: String(FRONTED_PORT), ASH_PREVIEW_HOST: host },
  })
})
afterAll(async () => {
  await browser?.close()
  front?.close()
  await server?.close()
  await fronted?.close()
})

/** The browser of one user. */
async function newContext(): Promise<BrowserContext> {
  const context = await browser.newContext({ ignoreHTTPSErrors: true })
  onTestFinished(() => context.close())
  return context
}
const newPage = async () => (await newContext()).newPage()

/** Follows a link; returns its token. */
async function open(
  page: Page,
  client: AshClient,
  [sessionId, port]: [string, number],
  via = (url: URL) => url,
): Promise<string> {
  const url = via(new URL((await client.ports.link(sessionId, port)).url))
  await page.goto(url.href)
  expect(page.url()).toBe(`${url.origin}/`)
  return url.searchParams.get('ash_token') ?? ''
}

/** For whoever wants to see it. */
async function takePicture(page: Page, name: string): Promise<void> {
  const folder = process.env.ASH_TEST_SCREENSHOTS
  if (folder !== undefined) await page.screenshot({ path: join(folder, `${name}.png`) })
}

test('a page of a Vite dev server follows changes of its files without being loaded again', async () => {
  const { client } = server
  const { id } = await client.sessions.create({ template: 'node' })
  await client.workspace.upload(id, await viteArchive('first'))
  // The Node that Ash brings: the machine's own may be too old for Vite.
  const { result: node } = await client.sessions.execute(id, {
    language: 'javascript',
    code: 'process.execPath',
  })
  await serve(client, id, VITE_PORT, [String(node), VITE])
  const page = await newPage()
  const connected = page.waitForEvent('console', (message) => message.text() === '[vite] connected.')
  await open(page, client, [id, VITE_PORT])
  await page.getByText('first').waitFor()
  await connected
  await page.evaluate("window.marker = 'kept'")

  await client.files.write(id, 'message.js', messageModule('second'))
  await page.getByText('second').waitFor()
  await client.files.write(id, 'style.css', style('rgb(135, 206, 235)'))
  await page.waitForFunction(
    "getComputedStyle(document.querySelector('main')).backgroundColor === 'rgb(135, 206, 235)'",
  )
  expect(await page.evaluate('window.marker')).toBe('kept')
  await takePicture(page, 'vite')
  await client.sessions.end(id)
})

test('a page of a plain server is shown with all it holds, and its links lead on', async () => {
  const { client } = server
  const { id } = await client.sessions.create({ template: 'python' })
  const pictures = Array.from({ length: 20 }, (_, index) => `<img src="picture.svg?${index}">`)
  const files = {
    'index.html': `<!doctype html><link rel="stylesheet" href="style.css"><h1>From inside</h1><p></p>
      ${pictures.join('\n')} <a href="next.html">next</a><script src="script.js"></script>`,
    'style.css': 'h1 { color: rgb(1, 2, 3) }',
    'script.js': "document.querySelector('p').textContent = 'a script ran'",
    'picture.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" width="120" height="60"><circle cx="60" cy="30" r="25"/></svg>',
  }
  for (const [path, content] of Object.entries(files)) await client.files.write(id, path, content)
  await serve(client, id, APP_PORT, ['python3', '-m', 'http.server', String(APP_PORT)])
  const page = await newPage()
  await open(page, client, [id, APP_PORT])
  await page.getByText('a script ran').waitFor()
  const widths = await page.evaluate('Array.from(document.images, (image) => image.naturalWidth)')
  expect(widths).toEqual(pictures.map(() => 120))
  expect(await page.evaluate("getComputedStyle(document.querySelector('h1')).color")).toBe('rgb(1, 2, 3)')
  await takePicture(page, 'plain')
  await client.files.write(id, 'next.html', '<h1>Written later</h1>')
  await page.getByText('next').click()
  await page.getByText('Written later').waitFor()
  await client.sessions.end(id)
})

test('server-sent events and a WebSocket reach a page', async () => {
  const { client } = server
  const id = await createAppSession(client)
  const page = await newPage()
  await open(page, client, [id, APP_PORT])
  const events = `new Promise((resolve) => {
    const seen = []
    new EventSource('/events').onmessage = ({ data }) => {
      seen.push(data)
      if (data === 'first') fetch('/go')
      if (data === 'second') resolve(seen)
    }
  })`
  expect(await page.evaluate(events)).toEqual(['first', 'second'])
  const echo = `new Promise((resolve, reject) => {
    const socket = new WebSocket('/ws')
    socket.onopen = () => socket.send('hello')
    socket.onmessage = ({ data }) => resolve(data)
    socket.onerror = () => reject(new Error('no connection'))
  })`
  expect(await page.evaluate(echo)).toBe('hello')
  await client.sessions.end(id)
})

/** What the hostile page leaves behind. */
interface Report {
  outcomes: Record<string, string>
  /** Everything it could find out about itself, and the headers that its server was sent. */
  seen: string
  /** What came of a socket to its own server. */
  own: string
}

const stateOf = ({ id, status }: Session) => [id, status]

interface Setup {
  place: string
  own: () => TestServer
  domain: string
  via?: (url: URL) => URL
  cookie: { name: string; secure: boolean }
  /** What the other preview's program notices of the hostile page. */
  noticed: string[]
}
const SETUPS: Setup[] = [
  {
    // To a browser each of these is a site of its own, which gets no cookies with what others ask of it.
    place: 'localhost',
    own: () => server,
    domain: 'localhost',
    cookie: { name: 'ash_preview', secure: false },
    noticed: ['GET /secret'],
  },
  {
    // These are one site: browsers send the cookies of one with what another asks.
    place: 'a domain, over https',
    own: () => fronted,
    domain: DOMAIN,
    cookie: { name: '__Host-ash_preview', secure: true },
    noticed: ['GET /framed', 'GET /secret'],
  },
  {
    // And here they do not say who asks.
    place: 'a domain, over http',
    own: () => fronted,
    domain: DOMAIN,
    via: (url) => Object.assign(url, { protocol: 'http', port: String(FRONTED_PORT) }),
    cookie: { name: 'ash_preview', secure: false },
    noticed: ['GET /open', 'GET /open', 'GET /framed', 'GET /secret'],
  },
]

describe.each(SETUPS)('below $place', ({ own, domain, via, cookie, noticed }) => {
  test('a hostile page gets nothing of the API and of another preview, whatever its visitor has open', async () => {
    const { client, url: apiUrl } = own()
    const [id, otherId] = await Promise.all([createAppSession(client), createAppSession(client)])
    await client.files.write(id, 'page.html', await readFile(HOSTILE_PAGE))
    const context = await newContext()
    const [page, otherPage] = [await context.newPage(), await context.newPage()]
    const tokens = [
      await open(page, client, [id, APP_PORT], via),
      await open(otherPage, client, [otherId, APP_PORT], via),
    ]
    const [{ origin, protocol, port }, other] = [new URL(page.url()), new URL(otherPage.url()).origin]
    expect((await fetch(`${apiUrl}/api/sessions`)).status).toBe(200)
    const before = await client.sessions.list()
    const tap = await startTap(Number(new URL(apiUrl).port))
    onTestFinished(() => tap.close())

    const api = `http://localhost:${tap.port}`
    const targets = { api, listener: `${protocol}//${domain}:${port}`, other, otherId, domain }
    const popup = context.waitForEvent('page')
    await page.goto(`${origin}/page#${encodeURIComponent(JSON.stringify(targets))}`)
    const report = await (await page.waitForFunction<Report>('window.report')).jsonValue()
    const names = Object.keys(report.outcomes)
    expect(report.outcomes).toEqual(Object.fromEntries(names.map((name) => [name, 'nothing'])))
    expect(names).toHaveLength(19)
    expect(report.own).toBe('got a connection')
    expect(report.seen).toContain('x-forwarded-host')
    for (const token of tokens) expect(report.seen).not.toContain(token)

    // It was asked all that, by a browser that had nothing to show for it.
    for (const line of [/^GET \/api\/sessions /m, /^POST \S+\/pause /m, /^GET \S+\/terminal /m])
      expect(tap.sent()).toMatch(line)
    expect(tap.sent()).not.toMatch(/^(cookie|authorization):/im)
    expect((await client.sessions.list()).sessions.map(stateOf)).toEqual(before.sessions.map(stateOf))
    expect(await client.terminals.list(otherId)).toEqual([])

    // The other is shown to its visitor, in a window of its own; nothing else came to it.
    await (await popup).getByText('hello from /secret').waitFor()
    await otherPage.reload()
    const received = await otherPage.evaluate<string[]>("fetch('/received').then((reply) => reply.json())")
    const others = ['GET /', 'GET /received', 'GET /favicon.ico']
    expect(received.filter((line) => !others.includes(line))).toEqual(noticed)
    const cookies = await context.cookies()
    // A domain without a dot before it: for that host alone.
    expect(tokens.map((token) => cookies.filter(({ value }) => value === token))).toEqual(
      [origin, other].map((of) => [
        expect.objectContaining({ ...cookie, domain: new URL(of).hostname, httpOnly: true, sameSite: 'Lax' }),
      ]),
    )
    for (const each of [id, otherId]) await client.sessions.end(each)
  })
})
