import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { deployTestAgent, scripted } from '../integration/support/conversation.ts'
import { startTestServer, type TestServer } from '../integration/support/test-server.ts'
import { bundleInstantBridge } from './support/instant-bridge.ts'
import { interleave, ms, row, summaryRow } from './support/samples.ts'
import { timeRequest } from './support/time-request.ts'

const WARM_UP = 200
const ROUNDS = 2000
const REAL_ROUNDS = 30

/** What Ash adds to a turn: the same short turn through Ash and through the barest relay, in turns. */
export async function messageOverhead(): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-bench-'))
  const bridge = await bundleInstantBridge(folder)
  const relay = await startRelay(join(folder, 'relay.sock'))
  const server = await startTestServer({ env: { ASH_BRIDGE_ENTRY: bridge, ASH_LOG_LEVEL: 'info' } })
  try {
    const send = await openSession(server)
    const runs = { relay: () => timeRequest(relay.url, { content: 'hello' }), ash: () => send('hello') }
    await interleave(WARM_UP, runs)
    const { relay: floor, ash } = await interleave(ROUNDS, runs)
    if (!floor || !ash) throw new Error('no samples')
    return [
      'A turn of three SDK messages, from the request to the last byte of its stream, one client, one session,',
      'SQLite. Ash runs whole (HTTP, keys, log with commit before send, bwrap, bridge); an instant stand-in takes',
      "the agent SDK's place. The floor is a relay in the same run: HTTP → Unix socket → other process → SSE.",
      '',
      row('ms', 'n', 'p50', 'p95', 'p99', 'ratio p50'),
      row('---', '---', '---', '---', '---', '---'),
      summaryRow('bare relay (floor)', floor, '1.0'),
      summaryRow('Ash, instant SDK', ash, (ash.p50 / floor.p50).toFixed(1)),
      row(
        '**added by Ash**',
        '',
        `**${ms(ash.p50 - floor.p50)}**`,
        ms(ash.p95 - floor.p95),
        `**${ms(ash.p99 - floor.p99)}**`,
        '',
      ),
      '',
      ...(await realSdk()),
    ]
  } finally {
    await server.close()
    relay.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

async function startRelay(socket: string): Promise<{ url: string; stop: () => void }> {
  const child = fork(join(import.meta.dirname, 'support/bare-relay.ts'), [socket])
  const [port] = await once(child, 'message')
  return { url: `http://127.0.0.1:${port}/`, stop: () => child.kill() }
}

async function openSession({
  client,
  url,
  apiKey,
}: TestServer): Promise<(content: string) => Promise<number>> {
  await deployTestAgent(client)
  const { id } = await client.sessions.create({ agent: 'zebra' })
  const headers = { authorization: `Bearer ${apiKey}` }
  return (content) => timeRequest(`${url}/api/sessions/${id}/messages`, { content }, headers)
}

/** With the real SDK: the first turn starts `claude`, later ones start nothing. */
async function realSdk(): Promise<string[]> {
  const server = await startTestServer()
  try {
    const send = await openSession(server)
    const firstMs = await send(scripted({ text: 'hello' }))
    const before = await server.listSandboxProcesses()
    const { later } = await interleave(REAL_ROUNDS, { later: () => send(scripted({ text: 'hello' })) })
    const after = await server.listSandboxProcesses()
    const started = after.filter(({ pid }) => !before.some((process) => process.pid === pid)).length
    if (!later) throw new Error('no samples')
    return [
      'With the real agent SDK and `claude` against the scripted model API, which answers at once:',
      '',
      row('ms', 'n', 'p50', 'p95', 'p99', 'processes started'),
      row('---', '---', '---', '---', '---', '---'),
      row('first turn (starts `claude`)', 1, ms(firstMs), '', '', ''),
      summaryRow('later turns', later, String(started)),
    ]
  } finally {
    await server.close()
  }
}
