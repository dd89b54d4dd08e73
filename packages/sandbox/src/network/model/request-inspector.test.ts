import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type InspectedRequest, inspectRequest } from './request-inspector.ts'

const MESSAGES = [{ role: 'user', content: 'hi' }]
const BASE = { model: 'claude-opus-5-5', max_tokens: 1000, messages: MESSAGES }

function inspect(more: object, call: 'messages' | 'count_tokens' = 'messages'): InspectedRequest {
  const request = inspectRequest(Buffer.from(JSON.stringify({ ...BASE, ...more })), call)
  if ('malformed' in request) throw new Error(request.malformed)
  return request
}

const fetchesOf = (more: object) => inspect(more).remoteFetches
const withBlock = (block: object) => ({ messages: [{ role: 'user', content: [block] }] })
const picture = { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }
const FETCHED = [{ kind: 'url_source', url: 'https://example.com/a.png' }]

/** The shape of what CLI 2.1.325 sends, without its texts. */
const CLAUDE_CODE = {
  model: 'claude-opus-5-5',
  max_tokens: 128_000,
  stream: true,
  metadata: { user_id: '{"device_id":"x","session_id":"y"}' },
  system: [{ type: 'text', text: 'You are…', cache_control: { type: 'ephemeral' } }],
  thinking: { type: 'adaptive', display: 'omitted' },
  output_config: { effort: 'medium' },
  context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
  tools: [
    ...['Agent', 'Bash', 'Edit', 'Read', 'WebFetch', 'WebSearch', 'Write'].map((name) => ({
      name,
      description: 'fetches https://example.com',
      input_schema: { type: 'object', properties: { url: { type: 'string', format: 'uri' } } },
    })),
    {
      name: 'DeferredToolPlaceholder',
      description: '',
      input_schema: { type: 'object' },
      defer_loading: true,
    },
  ],
  messages: [
    { role: 'user', content: [{ type: 'text', text: 'search cats' }] },
    { role: 'system', content: 'reminder' },
    {
      role: 'assistant',
      content: [
        {
          type: 'tool_use',
          id: 't1',
          name: 'WebFetch',
          input: { url: 'https://evil.com', source: picture.source },
        },
      ],
    },
    {
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: 't1', is_error: true, content: '{"type":"url"}' }],
    },
  ],
}

test('an ordinary request of the agent’s client makes the provider fetch nothing', () => {
  expect(inspect(CLAUDE_CODE)).toMatchObject({
    model: 'claude-opus-5-5',
    maxTokens: 128_000,
    isStream: true,
    attempts: [{ model: 'claude-opus-5-5', maxTokens: 128_000 }],
    cacheWrite: '5m',
    isFast: false,
    isRegional: false,
    remoteFetches: [],
  })
})

test('its web search is a server tool, in a request of its own', () => {
  const tools = [{ type: 'web_search_20250305', name: 'web_search', max_uses: 8 }]
  expect(fetchesOf({ ...CLAUDE_CODE, tools })).toEqual([
    { kind: 'web_search', type: 'web_search_20250305', maxUses: 8 },
  ])
})

const nested = (depth: number): object =>
  depth === 0 ? picture : { type: 'tool_result', tool_use_id: 't', content: [nested(depth - 1)] }

test.each([
  ['an image', withBlock(picture)],
  ['a document', withBlock({ type: 'document', source: picture.source })],
  ['an image in a tool result', withBlock(nested(1))],
  ['an image far down', withBlock(nested(200))],
  [
    'an image in a document of blocks',
    withBlock({ type: 'document', source: { type: 'content', content: [picture] } }),
  ],
  [
    'a document in a web fetch result',
    withBlock({ type: 'web_fetch_tool_result', content: { content: picture } }),
  ],
  ['an image in the system prompt', { system: [picture] }],
  ['an image in a system message', { messages: [{ role: 'system', content: [picture] }] }],
  ['an image from the assistant', { messages: [{ role: 'assistant', content: [picture] }] }],
  ['content that is one block', { messages: [{ role: 'user', content: picture }] }],
  ['a source in a field nobody knows yet', { attachments: { first: picture.source } }],
  ['a source in arguments of no tool call', withBlock({ type: 'tool_request', input: picture })],
])('%s by URL is found', (_, more) => {
  expect(fetchesOf(more)).toEqual(FETCHED)
})

test.each([
  ['base64', { type: 'base64', media_type: 'image/png', data: 'aGk=' }],
  ['text', { type: 'text', media_type: 'text/plain', data: 'https://example.com' }],
  ['a file', { type: 'file', file_id: 'file_1' }],
])('a source of %s is no fetch', (_, source) => {
  expect(fetchesOf(withBlock({ type: 'document', source }))).toEqual([])
})

test('a URL that is no text is found and can be allowed by no list', () => {
  expect(fetchesOf(withBlock({ type: 'image', source: { type: 'url', url: 7 } }))).toEqual([
    { kind: 'url_source', url: '' },
  ])
})

test('remote MCP servers are found, and ways of naming them that are new', () => {
  const mcp_servers = [
    { type: 'url', name: 'a', url: 'https://mcp.example.com/sse', authorization_token: 'x' },
    { type: 'registry', name: 'b' },
  ]
  expect(fetchesOf({ mcp_servers })).toEqual([
    { kind: 'server_tool', type: 'mcp_servers' },
    { kind: 'mcp_server', url: 'https://mcp.example.com/sse' },
  ])
  expect(fetchesOf({ mcp_servers: mcp_servers[0] })).toEqual([
    { kind: 'mcp_server', url: 'https://mcp.example.com/sse' },
  ])
})

test('tools defined in the middle of a conversation are found', () => {
  const definition = { type: 'web_fetch_20260318', name: 'web_fetch' }
  const addition = { type: 'tool_addition', tool: { type: 'tool_definition', definition } }
  const expected = [{ kind: 'web_fetch', type: 'web_fetch_20260318', maxUses: 10, domains: [] }]
  expect(fetchesOf({ messages: [{ role: 'system', content: [addition] }] })).toEqual(expected)
  expect(fetchesOf(withBlock({ type: 'compaction', content: '', tool_changes: [addition] }))).toEqual(
    expected,
  )
})

test('a conversation kept at the provider counts as unknown', () => {
  expect(fetchesOf({ thread: { type: 'continue', previous_message_id: 'msg_1' } })).toEqual([
    { kind: 'server_tool', type: 'thread' },
  ])
})

test('models that may be run besides are found', () => {
  const tools = [{ type: 'advisor_20260301', name: 'advisor', model: 'claude-fable-5-1' }]
  const fallbacks = [{ model: 'claude-sonnet-5', max_tokens: 50, speed: 'fast' }, { model: 'claude-opus-5' }]
  expect(inspect({ tools, fallbacks })).toMatchObject({
    isFast: true,
    attempts: [
      { model: 'claude-opus-5-5', maxTokens: 1000 },
      { model: 'claude-sonnet-5', maxTokens: 50 },
      { model: 'claude-opus-5', maxTokens: 1000 },
      { model: 'claude-fable-5-1', maxTokens: 1000 },
    ],
  })
})

test('what makes a request dearer is found', () => {
  expect(inspect({ speed: 'fast', inference_geo: 'us' })).toMatchObject({ isFast: true, isRegional: true })
  expect(inspect({ cache_control: { type: 'ephemeral' } }).cacheWrite).toBe('5m')
  const hour = { type: 'text', text: 'x', cache_control: { type: 'ephemeral', ttl: '1h' } }
  expect(inspect({ cache_control: { type: 'ephemeral' }, ...withBlock(hour) }).cacheWrite).toBe('1h')
  expect(inspect({}).cacheWrite).toBe('none')
})

test('the prompt is estimated by its bytes, images by their number, what is unseen amply', () => {
  const base = inspect({}).inputEstimate
  expect(base).toBeGreaterThan(1000)
  const text = inspect({ system: 'x'.repeat(100_000) }).inputEstimate
  expect(text - base).toBeCloseTo(50_000, -2)
  const data = 'A'.repeat(4_000_000)
  const image = withBlock({ type: 'image', source: { type: 'base64', media_type: 'image/png', data } })
  expect(inspect(image).inputEstimate - base).toBeLessThan(6000)
  expect(inspect(withBlock(picture)).inputEstimate - base).toBeLessThan(6000)
  expect(inspect(withBlock({ type: 'document', source: picture.source })).inputEstimate).toBeGreaterThan(
    200_000,
  )
  expect(inspect({ system: 'x'.repeat(4_000_000) }).inputEstimate).toBe(1_000_000)
})

test('count_tokens needs no max_tokens, and its fetches are found too', () => {
  const { max_tokens, ...body } = { ...BASE, ...withBlock(picture) }
  const request = inspectRequest(Buffer.from(JSON.stringify(body)), 'count_tokens')
  expect(request).toMatchObject({ maxTokens: 0, remoteFetches: FETCHED })
})

const MODEL = '"model":"m","max_tokens":5,"messages":[]'

test.each([
  ['nothing', ''],
  ['half of it', '{"model":'],
  ['a list', '[]'],
  ['a text', '"x"'],
  ['null', 'null'],
  ['two values', '{} {}'],
  ['a byte order mark', `\uFEFF{${MODEL}}`],
  ['a comment', `{${MODEL}/* */}`],
  ['no model', '{"max_tokens":5}'],
  ['an empty model', '{"model":"","max_tokens":5}'],
  ['a model that is a number', '{"model":5,"max_tokens":5}'],
  ['a model without end', `{"model":"${'m'.repeat(300)}","max_tokens":5}`],
  ['no max_tokens', '{"model":"m"}'],
  ['a negative max_tokens', '{"model":"m","max_tokens":-1}'],
  ['an endless max_tokens', '{"model":"m","max_tokens":1e999}'],
  ['half a max_tokens', '{"model":"m","max_tokens":0.5}'],
  ['max_tokens as text', '{"model":"m","max_tokens":"5"}'],
  ['a key twice', `{${MODEL},"model":"other"}`],
  ['a key twice, far down', `{${MODEL},"a":[[{"source":{"type":"url"},"source":{"type":"text"}}]]}`],
  ['a key twice, once in escapes', `{${MODEL},"\\u006dodel":"other"}`],
  ['a key twice in what is passed over', `{${MODEL},"metadata":{"a":1,"a":2}}`],
])('a body of %s is malformed', (_, body) => {
  expect(inspectRequest(Buffer.from(body), 'messages')).toHaveProperty('malformed')
})

test('bytes that are no UTF-8 are malformed', () => {
  const body = Buffer.concat([Buffer.from(`{${MODEL},"a":"`), Buffer.of(0xff), Buffer.from('"}')])
  expect(inspectRequest(body, 'messages')).toHaveProperty('malformed')
})

test('every JSON value in a request is read as it is written, with no key taken to be double', () => {
  fc.assert(
    fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
      const body = Buffer.from(JSON.stringify({ ...BASE, extra: value, '__proto__ ': value }))
      expect(inspectRequest(body, 'messages')).not.toHaveProperty('malformed')
    }),
  )
  expect(inspectRequest(Buffer.from(`{${MODEL},"__proto__":{"a\\":":1}}`), 'messages')).not.toHaveProperty(
    'malformed',
  )
})

test('no bytes make the inspector throw', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      inspectRequest(Buffer.from(bytes), 'messages')
    }),
  )
})

test('a request nested a million deep is read without overflow', () => {
  const depth = 1_000_000
  const body = Buffer.from(`{${MODEL},"a":${'['.repeat(depth)}${']'.repeat(depth)}}`)
  expect(() => inspectRequest(body, 'messages')).not.toThrow()
})
