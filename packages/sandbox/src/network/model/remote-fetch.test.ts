import { expect, test } from 'vitest'
import { checkRemoteFetches, type FetchPolicy, fetchOfTool, type RemoteFetch } from './remote-fetch.ts'

const open: FetchPolicy = { isOpen: () => true, allows: () => true }
const none: FetchPolicy = { isOpen: () => false, allows: () => false }

/** `host`, `*.host` and `host:port`, as the network policy has them. */
const listing = (...entries: string[]): FetchPolicy => ({
  isOpen: () => false,
  allows: (host, port) =>
    entries.some((each) =>
      each.startsWith('*.')
        ? host.endsWith(each.slice(1))
        : each === `${host}:${port}` || (each === host && (port === 443 || port === 80)),
    ),
})

const judge = (fetch: RemoteFetch, policy: FetchPolicy) => checkRemoteFetches([fetch], policy)
const entry = (name: string) => (name === 'open' ? 'network: "open"' : `network: ["${name}"]`)
const source = (url: string): RemoteFetch => ({ kind: 'url_source', url })

test.each([
  ['https://example.com/a.png', 'example.com', 'example.com'],
  ['http://EXAMPLE.com', 'example.com', 'example.com'],
  ['https://example.com.', 'example.com', 'example.com'],
  ['https://example.com:8443/x?y#z', 'example.com:8443', 'example.com:8443'],
  ['https://a.b.example.com/', '*.example.com', 'a.b.example.com'],
  ['https://[2606:4700::1111]/', '2606:4700::1111', '[2606:4700::1111]'],
  ['https://1.1.1.1/x.pdf', '1.1.1.1', '1.1.1.1'],
])('%s goes through where the policy has %s, and is refused naming it elsewhere', (url, allowed, lacking) => {
  const setting = entry(lacking)
  expect(judge(source(url), listing(allowed)).isAllowed).toBe(true)
  expect(judge(source(url), listing('other.com'))).toMatchObject({ isAllowed: false, setting })
  expect(judge({ kind: 'mcp_server', url }, listing(allowed)).isAllowed).toBe(true)
  expect(judge({ kind: 'mcp_server', url }, none)).toMatchObject({ isAllowed: false, setting })
  expect(judge(source(url), open).isAllowed).toBe(true)
})

test.each([
  'https://example.com\\@evil.com/',
  'https://example.com@evil.com/',
  'https://evil.com\\.example.com/',
  'https://exam\tple.com/',
  ' https://example.com/',
  'https://example.com /',
  'https:example.com',
  'https:/example.com',
  '//example.com/',
  'https://example.com%2eevil.com/',
  'https://ex\u00ADample.com/',
  'https://example\u3002com/',
  'ftp://example.com/',
  'file:///etc/passwd',
  'data:text/plain,x',
  'https://example.com:99999999/',
  'https://example.com:443@evil.com/',
  'https://[::1',
  'https://',
  'example.com',
  '',
])('the URL %j could mean two hosts or none, and needs an open policy', (url) => {
  const all: FetchPolicy = { isOpen: () => false, allows: () => true }
  expect(judge(source(url), all)).toMatchObject({ isAllowed: false, setting: entry('open') })
  expect(judge(source(url), open).isAllowed).toBe(true)
})

test.each(['web_search_20250305', 'web_search_20260209', 'web_search_20260318'])(
  '%s needs an open policy',
  (type) => {
    const fetch = fetchOfTool({ type, name: 'web_search', max_uses: 8, allowed_domains: ['example.com'] })
    expect(fetch).toEqual({ kind: 'web_search', type, maxUses: 8 })
    expect(fetch && judge(fetch, listing('example.com', '*.example.com'))).toMatchObject({
      setting: entry('open'),
    })
    expect(fetch && judge(fetch, open).isAllowed).toBe(true)
  },
)

test.each([
  [['example.com'], ['example.com', '*.example.com'], undefined],
  [['Example.com/blog/*'], ['example.com', '*.example.com'], undefined],
  [['example.com'], ['example.com'], '*.example.com'],
  [['example.com'], ['*.example.com'], 'example.com'],
  [['example.com', 'other.org'], ['example.com', '*.example.com'], 'other.org'],
  [['*'], ['example.com'], 'open'],
  [['*.example.com'], ['*.example.com'], 'open'],
  [['com'], ['*.com'], 'open'],
  [['ex\u0430mple.com'], ['example.com'], 'open'],
  [[7], ['example.com'], 'open'],
  [[], ['example.com'], 'open'],
  [undefined, ['example.com'], 'open'],
  [null, ['example.com'], 'open'],
  ['example.com', ['example.com', '*.example.com'], 'open'],
])('web_fetch for %j under the list %j lacks %s', (allowed_domains, entries, lacking) => {
  const fetch = fetchOfTool({ type: 'web_fetch_20250910', name: 'web_fetch', allowed_domains })
  const verdict = fetch && judge(fetch, listing(...entries))
  expect(verdict).toMatchObject(
    lacking === undefined ? { isAllowed: true } : { isAllowed: false, setting: entry(lacking) },
  )
  expect(fetch && judge(fetch, open).isAllowed).toBe(true)
})

test.each([
  {},
  { type: 'custom' },
  { type: null },
  { type: 'bash_20250124' },
  { type: 'text_editor_20250728' },
  { type: 'computer_20251124' },
  { type: 'computer_toolset_20260801' },
  { type: 'browser_toolset_20260801' },
  { type: 'memory_20250818' },
  { type: 'tool_search_tool_regex_20251119' },
  { type: 'tool_search_tool_bm25' },
  { type: 'mcp_toolset', mcp_server_name: 'x' },
])('the tool %j reaches nothing from the provider', (tool) => {
  expect(fetchOfTool({ name: 'x', input_schema: { type: 'object' }, ...tool })).toBeUndefined()
})

test.each([
  { type: 'code_execution_20250825' },
  { type: 'advisor_20260301', model: 'claude-fable-5-1' },
  { type: 'teleport_20270101' },
  { type: 'web_search' },
  { type: 'bash_code_execution_20250825' },
  { type: 'memory_20250818x' },
  { type: 'teleport_20270101', input_schema: { type: 'object' } },
  { type: '' },
  { type: 7 },
  { type: ['custom'] },
])('the unknown tool %j needs an open policy and is named', (tool) => {
  const fetch = fetchOfTool({ name: 'x', ...tool })
  expect(fetch).toMatchObject({ kind: 'server_tool', type: String(tool.type) })
  expect(fetch && judge(fetch, none)).toMatchObject({
    setting: entry('open'),
    reason: expect.stringContaining('tool type'),
  })
})

test('a schema beside a server tool does not hide it', () => {
  expect(fetchOfTool({ type: 'web_search_20250305', input_schema: {} })?.kind).toBe('web_search')
})

test('reasons quote only a little of what the agent wrote', () => {
  const verdict = judge({ kind: 'server_tool', type: `x\n${'y'.repeat(10_000)}` }, none)
  expect(verdict.isAllowed || verdict.reason.length).toBeLessThan(300)
  expect(verdict.isAllowed || verdict.reason).not.toContain('\n')
})
