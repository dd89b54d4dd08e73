import { buildPacedBridge } from '../integration/faults/support/paced-bridge.ts'
import type { PacedTurn } from '../integration/faults/support/paced-turn.ts'
import { deployTestAgent } from '../integration/support/conversation.ts'
import { digestFirstTurn, digestTurn, type LogDigest } from '../integration/support/log-digest.ts'
import { startTestServer, type TestServer } from '../integration/support/test-server.ts'
import { liveRssMb } from './support/process-usage.ts'
import { row } from './support/samples.ts'

const ROUNDS = 5
const PIECE_BYTES = 64 * 1024
const TURN_BYTES = 200 * 1024 * 1024
const BYTES_PER_SECOND = 100_000

interface Sample {
  seconds: number
  grownMb: number
}

/** What a reader that hardly reads costs the one that does, and the server. */
export async function slowClient(): Promise<string[]> {
  await using bridge = await buildPacedBridge()
  const env = { ASH_BRIDGE_ENTRY: bridge.path, NODE_OPTIONS: '--inspect-port=0' }
  const server = await startTestServer({ env })
  try {
    await deployTestAgent(server.client)
    const first = await runTurn(server, false)
    const alone: Sample[] = []
    const beside: Sample[] = []
    for (let round = 0; round < ROUNDS; round++) {
      alone.push(await runTurn(server, false))
      beside.push(await runTurn(server, true))
    }
    const ratio = median(beside, 'seconds') / median(alone, 'seconds')
    return [
      `A turn of ${TURN_BYTES / 2 ** 20} MB in messages of ${PIECE_BYTES / 1024} KB, read to its end over its own stream, alone and`,
      `beside a reader that takes ${BYTES_PER_SECOND / 1000} KB/s; in turns, one server. Resident memory is read without garbage, right`,
      'before the turn and when the fast reader is done. Afterwards the slow reader is let go; it ends with the same',
      'entries each time, or there are no numbers.',
      '',
      row('median', 'n', 'seconds', 'memory grown by, MB (largest)'),
      row('---', '---', '---', '---'),
      row('the first turn of the server, alone', 1, first.seconds.toFixed(2), first.grownMb.toFixed(1)),
      sampleRow('later turns, alone', alone),
      sampleRow('later turns, beside the slow reader', beside),
      '',
      `The fast reader beside the slow one takes **${ratio.toFixed(2)} times** as long as alone.`,
    ]
  } finally {
    await server.close()
  }
}

async function runTurn(server: TestServer, isBesideSlow: boolean): Promise<Sample> {
  const { id } = await server.client.sessions.create({ agent: 'zebra' })
  const release = new AbortController()
  const throttle = { bytesPerSecond: BYTES_PER_SECOND, release: release.signal }
  const slow = isBesideSlow ? digestFirstTurn(server, id, throttle) : undefined
  const turn: PacedTurn = {
    mark: 'much',
    pieces: TURN_BYTES / PIECE_BYTES,
    pieceChars: PIECE_BYTES,
    paceMs: 0,
  }
  const before = await liveRssMb(server)
  const started = performance.now()
  const fast = await digestTurn(server, id, JSON.stringify(turn))
  const seconds = (performance.now() - started) / 1000
  const grownMb = (await liveRssMb(server)) - before
  release.abort()
  assertSame(fast, await slow)
  await server.client.sessions.end(id)
  return { seconds, grownMb }
}

function assertSame(fast: LogDigest, slow: LogDigest | undefined): void {
  if (slow && slow.sha256 !== fast.sha256)
    throw new Error(`The slow reader has ${slow.entries} entries, the fast one ${fast.entries}, not the same`)
}

function median(samples: Sample[], field: keyof Sample): number {
  const sorted = samples.map((sample) => sample[field]).sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

function sampleRow(name: string, samples: Sample[]): string {
  const largest = Math.max(...samples.map(({ grownMb }) => grownMb))
  const grown = `${median(samples, 'grownMb').toFixed(1)} (${largest.toFixed(1)})`
  return row(name, samples.length, median(samples, 'seconds').toFixed(2), grown)
}
