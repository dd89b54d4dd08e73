import type { Socket } from 'node:net'
import { setImmediate as tick } from 'node:timers/promises'
import { AshError, type BridgeEvent, encodeLine, encodeMessage } from '@ash-ai/shared'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { BridgeClient } from './bridge-client.ts'
import { OutputMeter } from './output-meter.ts'
import { connectBridge } from './testing/bridge-pair.ts'

const MB = 1024 * 1024
const BURST_BYTES = 8 * MB // At 1 MB/s.
const PULSE = { pingIntervalMs: 10, pongTimeoutMs: 30 }

beforeEach(() => {
  vi.useFakeTimers({
    toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'Date', 'performance'],
  })
})
afterEach(() => {
  vi.useRealTimers()
})

test('whoever sends all it can gets the rate and a burst, and no less than the rate', () => {
  const meter = new OutputMeter(1)
  let sent = 0
  const started = performance.now()
  while (performance.now() - started < 60_000) {
    sent += 64 * 1024
    vi.advanceTimersByTime(meter.pauseAfter(64 * 1024))
  }
  expect(sent).toBeLessThanOrEqual(60 * MB + BURST_BYTES + 64 * 1024)
  expect(sent).toBeGreaterThan(60 * MB)
  expect(meter.excesses).toBe(1)
})

test('whoever stays below the rate is never held up, and has its burst again after a rest', () => {
  const meter = new OutputMeter(1)
  for (let second = 0; second < 60; second++) {
    expect(meter.pauseAfter(MB)).toBe(0)
    vi.advanceTimersByTime(1_000)
  }
  expect(meter.pauseAfter(BURST_BYTES)).toBe(0)
  expect(meter.excesses).toBe(0)
})

test('whoever is dear to read gets half of the time, however few bytes it sends', () => {
  const meter = new OutputMeter(1)
  let workMs = 0
  const started = performance.now()
  while (performance.now() - started < 60_000) {
    workMs += 100
    vi.advanceTimersByTime(100)
    vi.advanceTimersByTime(meter.pauseAfter(1024, 100))
  }
  expect(workMs).toBeGreaterThan(30_000)
  expect(workMs).toBeLessThanOrEqual(30_000 + 2 * 2_000 + 100)
  expect(meter.excesses).toBe(1)
})

test('a second excess counts when there was peace in between', () => {
  const meter = new OutputMeter(1)
  for (const excesses of [1, 2, 3]) {
    while (meter.pauseAfter(MB) === 0);
    expect(meter.pauseAfter(MB)).toBeGreaterThan(0)
    expect(meter.excesses).toBe(excesses)
    vi.advanceTimersByTime(20_000)
  }
})

interface Flood {
  client: BridgeClient
  stream: Socket
  bridge: Socket
  /** Messages that were sent, and those that came out at the other end. */
  sent: number
  received: BridgeEvent[]
  turn: Promise<unknown>
}

/** A bridge that writes 12 MB at once to a client that takes 1 MB/s. */
async function floodAtOnce(): Promise<Flood> {
  const { client, bridge, stream } = await connectBridge(PULSE, 1)
  const received: BridgeEvent[] = []
  const query = { cmd: 'query' as const, content: 'hi', options: {} }
  const turn = client.run(query, (event) => void received.push(event)).then((end) => void received.push(end))
  const line = encodeMessage('1', { type: 'stream_event', text: 'x'.repeat(16 * 1024) })
  const sent = Math.ceil((12 * MB) / line.length)
  for (let i = 0; i < sent; i++) bridge.write(line)
  while (!stream.isPaused()) await tick()
  return { client, bridge, stream, sent, received, turn }
}

/** Time stands still while there is something to read, however slow this machine is. */
async function turnClockUntil(stream: Socket, isOver: () => boolean): Promise<void> {
  for (; !isOver(); await tick()) if (stream.isPaused()) vi.advanceTimersByTime(10)
}

test('a flood waits outside the server, and all of it arrives', async () => {
  const { client, bridge, stream, sent, received, turn } = await floodAtOnce()
  for (let i = 0; i < 100; i++) await tick()
  expect(stream.bytesRead).toBeLessThan(BURST_BYTES + 256 * 1024)
  expect(bridge.writableLength).toBeGreaterThan(2 * MB)
  bridge.write(encodeLine({ ev: 'done', id: '1', data: { stopReason: 'end_turn' } }))
  const started = performance.now()
  await turnClockUntil(stream, () => received.at(-1)?.ev === 'done')
  await turn
  expect(received.filter(({ ev }) => ev === 'message')).toHaveLength(sent)
  expect(received.at(-1)).toMatchObject({ ev: 'done' })
  expect(performance.now() - started).toBeGreaterThan(3_500) // Of the clock that this test turns.
  expect(client.outputExcesses).toBe(1)
})

test('a bridge that is held up is not taken for dead, one that falls silent afterwards is', async () => {
  const { client, sent, received, stream, turn } = await floodAtOnce()
  turn.catch(() => {})
  vi.advanceTimersByTime(PULSE.pongTimeoutMs + 2 * PULSE.pingIntervalMs - 1)
  expect([stream.isPaused(), client.isClosed]).toEqual([true, false])
  await turnClockUntil(stream, () => received.length === sent)
  expect(client.isClosed).toBe(false)
  vi.advanceTimersByTime(200)
  expect((await client.closed).code).toBe('bridge_unresponsive')
})

test('a connection that is closed while it is held up leaves no timer', async () => {
  const { client, turn } = await floodAtOnce()
  turn.catch(() => {})
  client.close(new AshError('sandbox_died', 'stopped'))
  expect(vi.getTimerCount()).toBe(0)
})
