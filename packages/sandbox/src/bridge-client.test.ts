import { once } from 'node:events'
import type { Socket } from 'node:net'
import { createInterface } from 'node:readline'
import {
  AshError,
  type BridgeCommand,
  type BridgeEvent,
  encodeLine,
  encodeMessage,
  isAshError,
  MAX_LINE_BYTES,
  MAX_OUTSTANDING_COMMANDS,
  UNSOLICITED,
} from '@ash-ai/shared'
import { afterEach, expect, test, vi } from 'vitest'
import type { BridgeClient } from './bridge-client.ts'
import { connectBridge } from './testing/bridge-pair.ts'

afterEach(() => {
  vi.useRealTimers()
})

async function connectPair() {
  const pair = await connectBridge()
  return { ...pair, commands: readCommands(pair.bridge) }
}

async function* readCommands(bridge: Socket): AsyncGenerator<BridgeCommand> {
  for await (const line of createInterface({ input: bridge })) yield JSON.parse(line) as BridgeCommand
}

async function nextCommand(commands: AsyncIterator<BridgeCommand>): Promise<BridgeCommand> {
  const { value, done } = await commands.next()
  if (done) throw new Error('the client is gone')
  return value
}

/** Every event of a command, the one that ends it included. */
async function collect(client: BridgeClient, command: Parameters<BridgeClient['run']>[0]) {
  const all: BridgeEvent[] = []
  const end = await client.run(command, (event) => void all.push(event))
  return [...all, end]
}
const QUERY = { cmd: 'query' as const, content: 'hi', options: {} }

const codeOf = async (work: Promise<unknown>) =>
  work.then(
    () => 'no error',
    (error: unknown) => (isAshError(error) ? error.code : error),
  )

test('a bridge that says so is ready', async () => {
  const { client, bridge } = await connectPair()
  bridge.write(encodeLine({ ev: 'ready', id: UNSOLICITED }))
  await client.ready
})

test('commands under way at once each get their own answer, in whatever order', async () => {
  const { client, bridge, commands } = await connectPair()
  const calls = ['a', 'b', 'c'].map((command) => client.call({ cmd: 'exec', command, timeoutMs: 1000 }))
  const received = [await nextCommand(commands), await nextCommand(commands), await nextCommand(commands)]
  expect(new Set(received.map(({ id }) => id)).size).toBe(3)
  for (const command of received.reverse()) {
    bridge.write(
      encodeLine({ ev: 'result', id: command.id, data: command.cmd === 'exec' && command.command }),
    )
  }
  expect(await Promise.all(calls)).toEqual(['a', 'b', 'c'])
})

test('a turn iterates its messages as they were written, up to its end', async () => {
  const { client, bridge, commands } = await connectPair()
  const turn = collect(client, { ...QUERY, options: { model: 'm' } })
  const { id, ...command } = await nextCommand(commands)
  expect(command).toEqual({ cmd: 'query', content: 'hi', options: { model: 'm' } })
  const message = { type: 'assistant', text: 'grüße\u2028', n: 1 }
  bridge.write(encodeMessage(id, message))
  bridge.write(encodeLine({ ev: 'done', id, data: { stopReason: 'end_turn' } }))
  expect(await turn).toEqual([
    { ev: 'message', id, type: 'assistant', json: JSON.stringify(message) },
    { ev: 'done', id, data: { stopReason: 'end_turn' } },
  ])
})

test('an event cut into single bytes arrives whole', async () => {
  const { client, bridge, commands } = await connectPair()
  const call = client.call({ cmd: 'interrupt' })
  const { id } = await nextCommand(commands)
  bridge.setNoDelay(true)
  for (const byte of Buffer.from(encodeLine({ ev: 'result', id, data: 'grüße' }))) {
    await new Promise((resolve) => bridge.write(Buffer.of(byte), resolve))
  }
  expect(await call).toBe('grüße')
})

test('messages between turns belong to no command', async () => {
  const { client, bridge } = await connectPair()
  bridge.write(encodeMessage(UNSOLICITED, { type: 'system' }) + encodeLine({ ev: 'ready', id: UNSOLICITED }))
  await client.ready // Both came before anybody wanted them.
  const { promise, resolve } = Promise.withResolvers<BridgeEvent>()
  client.takeUnsolicited(resolve).catch(() => {})
  expect(await promise).toMatchObject({ ev: 'message', type: 'system' })
})

test('a late answer to an abandoned command is ignored', async () => {
  const { client, bridge, commands } = await connectPair()
  const abandoned = client.run(QUERY, () => {
    throw new Error('no more')
  })
  const { id } = await nextCommand(commands)
  bridge.write(encodeMessage(id, { type: 'system' }))
  await expect(abandoned).rejects.toThrow('no more')
  bridge.write(encodeLine({ ev: 'done', id, data: { stopReason: 'end_turn' } }))
  const call = client.call({ cmd: 'interrupt' })
  bridge.write(encodeLine({ ev: 'result', id: (await nextCommand(commands)).id, data: 'alive' }))
  expect(await call).toBe('alive')
})

test('an event is handed on when the one before it is taken, the end last', async () => {
  const { client, bridge, commands } = await connectPair()
  const order: string[] = []
  const turn = client.run(QUERY, async (event) => {
    const name = event.ev === 'message' ? event.type : event.ev
    order.push(`${name} begins`)
    await new Promise(setImmediate)
    order.push(`${name} taken`)
  })
  const { id } = await nextCommand(commands)
  bridge.write(
    encodeMessage(id, { type: 'a' }) +
      encodeMessage(id, { type: 'b' }) +
      encodeLine({ ev: 'done', id, data: { stopReason: 'end_turn' } }),
  )
  expect((await turn).ev).toBe('done')
  expect(order).toEqual(['a begins', 'a taken', 'b begins', 'b taken'])
})

test.each([
  ['a code of the table', 'model_api_error', 'model_api_error'],
  ['a code that is not in the table', 'made_up', 'agent_failed'],
  ['the name of something every object has', 'constructor', 'agent_failed'],
])('an error answer with %s fails the call', async (_, code, expected) => {
  const { client, bridge, commands } = await connectPair()
  const call = client.call({ cmd: 'interrupt' })
  call.catch(() => {})
  const { id } = await nextCommand(commands)
  bridge.write(encodeLine({ ev: 'error', id, code, error: `${'x'.repeat(10_000)}` }))
  const error = await call.catch((thrown: unknown) => thrown)
  expect(isAshError(error) && error.code).toBe(expected)
  expect((error as Error).message.length).toBeLessThanOrEqual(4000)
})

const HOSTILE: [string, (id: string) => string | Buffer][] = [
  ['text that is not JSON', () => 'hello\n'],
  ['half an object', (id) => `{"ev":"result","id":"${id}","data":\n`],
  ['JSON that is no object', () => '[1]\n'],
  ['a carriage return', (id) => `{"ev":"result","id":"${id}",\r"data":1}\n`],
  ['bytes that are no text', () => Buffer.from([0xff, 0xfe, 0x0a])],
  ['an unknown event', (id) => `{"ev":"surprise","id":"${id}"}\n`],
  ['an event without an id', () => '{"ev":"result","data":1}\n'],
  ['an id that is no id', () => '{"ev":"result","id":"../1","data":1}\n'],
  ['the id of a command that was never sent', () => '{"ev":"result","id":"999","data":1}\n'],
  ['a made-up id', () => '{"ev":"result","id":"abc","data":1}\n'],
  ['a message that is not JSON', (id) => `{"ev":"message","id":"${id}","data":{]}\n`],
  ['a message without a type', (id) => `{"ev":"message","id":"${id}","data":{}}\n`],
  ['a done without a reason', (id) => `{"ev":"done","id":"${id}","data":{}}\n`],
]

test.each(HOSTILE)('%s ends the connection and fails what is under way', async (_, bytes) => {
  const { client, bridge, commands } = await connectPair()
  const codes = [codeOf(client.call({ cmd: 'interrupt' })), codeOf(client.takeUnsolicited(() => {}))]
  const { id } = await nextCommand(commands)
  bridge.write(bytes(id))
  expect(await Promise.all(codes)).toEqual(['bridge_protocol_error', 'bridge_protocol_error'])
  expect((await client.closed).code).toBe('bridge_protocol_error')
  expect(await codeOf(client.call({ cmd: 'interrupt' }))).toBe('bridge_protocol_error')
  await once(bridge.resume(), 'close')
})

test('a line that never ends is cut off at the limit', async () => {
  const { client, bridge, commands } = await connectPair()
  const code = codeOf(client.call({ cmd: 'interrupt' }))
  await nextCommand(commands)
  const chunk = Buffer.alloc(1024 * 1024, 'x')
  for (let sent = 0; sent <= MAX_LINE_BYTES && !bridge.destroyed; sent += chunk.length) {
    await new Promise((resolve) => bridge.write(chunk, resolve))
  }
  expect(await code).toBe('bridge_protocol_error')
})

test('what came before the broken line is still delivered', async () => {
  const { client, bridge, commands } = await connectPair()
  const seen: BridgeEvent['ev'][] = []
  const turn = client.run(QUERY, async ({ ev }) => {
    await new Promise(setImmediate)
    seen.push(ev)
  })
  const { id } = await nextCommand(commands)
  const line = encodeMessage(id, { type: 'assistant' })
  const bytes = [...Array(3).fill(Buffer.from(line)), Buffer.from([0xff, 0x0a]), Buffer.from(line)]
  bridge.write(Buffer.concat(bytes))
  expect(await codeOf(turn)).toBe('bridge_protocol_error')
  expect(seen).toEqual(['message', 'message', 'message'])
})

test('a bridge that dies in the middle of a line fails what is under way with sandbox_died', async () => {
  const { client, bridge, commands } = await connectPair()
  const codes = [1, 2].map(() => codeOf(client.call({ cmd: 'interrupt' })))
  const { id } = await nextCommand(commands)
  bridge.write(`{"ev":"result","id":"${id}"`)
  bridge.end()
  expect(await Promise.all(codes)).toEqual(['sandbox_died', 'sandbox_died'])
  expect((await client.closed).code).toBe('sandbox_died')
})

test('closing fails what is under way with the reason given, and only the first reason counts', async () => {
  const { client, commands } = await connectPair()
  const code = codeOf(client.call({ cmd: 'interrupt' }))
  await nextCommand(commands)
  client.close(new AshError('turn_timeout', 'too long'))
  client.close(new AshError('sandbox_died', 'later'))
  expect(await code).toBe('turn_timeout')
  expect((await client.closed).code).toBe('turn_timeout')
})

const FLOOD_BYTES = 32 * 1024 * 1024
const FLOOD_TEXT = 'x'.repeat(16 * 1024)

/** A bridge that sends without end, until the client reads no further. Returns how many messages were sent. */
async function flood(bridge: Socket, stream: Socket, id: string): Promise<number> {
  const line = encodeMessage(id, { type: 'stream_event', text: FLOOD_TEXT })
  const messages = Math.ceil(FLOOD_BYTES / line.length)
  for (let sent = 0; sent < messages; sent++) bridge.write(line)
  await expect.poll(() => stream.isPaused()).toBe(true)
  return messages
}

test('a slow reader holds back a fast bridge, loses nothing and goes on when it reads again', async () => {
  const { client, bridge, stream, commands } = await connectPair()
  const { promise: isOpen, resolve: open } = Promise.withResolvers<void>()
  let received = 0
  const turn = client.run(QUERY, ({ ev }) => {
    if (ev === 'message') received++
    return received === 1 ? isOpen : undefined
  })
  const { id } = await nextCommand(commands)
  const sent = await flood(bridge, stream, id)
  expect(stream.bytesRead).toBeLessThan(5 * 1024 * 1024)
  expect(bridge.writableLength).toBeGreaterThan(FLOOD_BYTES / 2)
  bridge.write(encodeLine({ ev: 'done', id, data: { stopReason: 'end_turn' } }))
  open()
  expect((await turn).ev).toBe('done')
  expect(received).toBe(sent)
})

test('whoever takes no more leaves the connection usable, however much was unread', async () => {
  const { client, bridge, stream, commands } = await connectPair()
  for (let round = 0; round < 3; round++) {
    const { promise: isOpen, reject: leave } = Promise.withResolvers<void>()
    const turn = client.run(QUERY, () => isOpen)
    const { id } = await nextCommand(commands)
    await flood(bridge, stream, id)
    leave(new Error('no more'))
    await expect(turn).rejects.toThrow('no more')
  }
  const call = client.call({ cmd: 'interrupt' })
  const { id } = await nextCommand(commands)
  bridge.write(encodeLine({ ev: 'result', id, data: 'alive' }))
  expect(await call).toBe('alive')
})

test('a command that would not fit in a line is refused and nothing is sent', async () => {
  const { client, bridge, commands } = await connectPair()
  const content = 'ü'.repeat(MAX_LINE_BYTES / 2)
  expect(await codeOf(client.call({ cmd: 'query', content, options: {} }))).toBe('payload_too_large')
  const call = client.call({ cmd: 'interrupt' })
  const { id, cmd } = await nextCommand(commands)
  expect(cmd).toBe('interrupt')
  bridge.write(encodeLine({ ev: 'result', id, data: 'alive' }))
  expect(await call).toBe('alive')
})

test('commands under way have a limit', async () => {
  const { client } = await connectPair()
  const calls = Array.from({ length: MAX_OUTSTANDING_COMMANDS }, () =>
    codeOf(client.call({ cmd: 'interrupt' })),
  )
  await expect(client.call({ cmd: 'interrupt' })).rejects.toThrow('too many commands')
  client.close(new AshError('sandbox_died', 'stopped'))
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['sandbox_died']))
})

test('a bridge that stops answering pings is given up while a command waits', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  const { client, commands } = await connectPair()
  const code = codeOf(client.call({ cmd: 'interrupt' }))
  expect((await nextCommand(commands)).cmd).toBe('interrupt')
  vi.advanceTimersByTime(5_000)
  expect((await nextCommand(commands)).cmd).toBe('ping')
  vi.advanceTimersByTime(30_000)
  expect(await code).toBe('bridge_unresponsive')
})

test('a bridge that answers pings may take its time, and an idle one is not asked', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  const { client, bridge, commands } = await connectPair()
  vi.advanceTimersByTime(120_000)
  const call = client.call({ cmd: 'interrupt' })
  const { id, cmd } = await nextCommand(commands)
  expect(cmd).toBe('interrupt')
  let heard = () => {}
  client.run(QUERY, () => heard()).catch(() => {})
  const query = await nextCommand(commands)
  for (let round = 0; round < 20; round++) {
    vi.advanceTimersByTime(5_000)
    const ping = await nextCommand(commands)
    bridge.write(encodeLine({ ev: 'pong', id: ping.id }))
    const message = new Promise<void>((resolve) => {
      heard = resolve
    })
    bridge.write(encodeMessage(query.id, { type: 'system' }))
    await message
  }
  bridge.write(encodeLine({ ev: 'result', id, data: 'at last' }))
  expect(await call).toBe('at last')
})

test('a bridge that is stopped on purpose may be silent, and has its full time afterwards', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  const { client, bridge, commands } = await connectPair()
  const code = codeOf(client.call({ cmd: 'interrupt' }))
  const { cmd } = await nextCommand(commands)
  expect(cmd).toBe('interrupt')
  client.hold()
  vi.advanceTimersByTime(3_600_000)
  client.letGo()
  vi.advanceTimersByTime(25_000)
  expect(client.isClosed).toBe(false)
  // Nothing was asked of it while it could not answer.
  expect((await nextCommand(commands)).cmd).toBe('ping')
  expect(bridge.bytesRead).toBeLessThan(1_000)
  vi.advanceTimersByTime(15_000)
  expect(await code).toBe('bridge_unresponsive')
})

test('a clock that is set forward is not taken for silence', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'Date'] })
  const { client, commands } = await connectPair()
  client.call({ cmd: 'interrupt' }).catch(() => {})
  expect((await nextCommand(commands)).cmd).toBe('interrupt')
  vi.setSystemTime(Date.now() + 3_600_000)
  vi.advanceTimersByTime(5_000)
  expect(client.isClosed).toBe(false)
})
