import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { deployTestAgent } from '../integration/support/conversation.ts'
import { startTestServer } from '../integration/support/test-server.ts'
import { interleave, row, summaryRow } from './support/samples.ts'

const ROUNDS = 60
const run = promisify(execFile)

const BWRAP = [
  ...['--unshare-user', '--unshare-all', '--disable-userns', '--ro-bind', '/usr', '/usr'],
  ...['--symlink', 'usr/bin', '/bin', '--symlink', 'usr/lib', '/lib', '--symlink', 'usr/lib64', '/lib64'],
  ...['--proc', '/proc', '--dev', '/dev', '--ro-bind', process.execPath, '/node'],
]

/** From the request for a session to a sandbox whose bridge answers, against what any such sandbox must start. */
export async function sessionCreate(): Promise<string[]> {
  const server = await startTestServer()
  const { client } = server
  try {
    await deployTestAgent(client)
    const created: string[] = []
    const samples = await interleave(ROUNDS, {
      bwrap: () => timed(() => run('bwrap', [...BWRAP, '/bin/true'])),
      node: () => timed(() => run('bwrap', [...BWRAP, '/node', '-e', '0'])),
      ash: () => timed(async () => created.push((await client.sessions.create({ agent: 'zebra' })).id)),
      // Outside the measured time: sessions must not pile up.
      end: () => timed(async () => client.sessions.end(created.pop() ?? '')),
    })
    const { bwrap, node, ash, end } = samples
    if (!bwrap || !node || !ash || !end) throw new Error('no samples')
    return [
      '`POST /api/sessions` until the session is active: folders made, model proxy listening, bwrap and Node',
      'started, bridge ready and configured. Cold: there is no warm pool yet. The floors run in the same turns.',
      '',
      row('ms', 'n', 'p50', 'p95', 'p99', 'ratio p50'),
      row('---', '---', '---', '---', '---', '---'),
      summaryRow('bare `bwrap true`', bwrap, (bwrap.p50 / node.p50).toFixed(1)),
      summaryRow('bare `bwrap node -e 0` (floor)', node, '1.0'),
      summaryRow('Ash: create a session', ash, (ash.p50 / node.p50).toFixed(1)),
      summaryRow('Ash: end it, files removed', end, (end.p50 / node.p50).toFixed(1)),
    ]
  } finally {
    await server.close()
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now()
  await work()
  return performance.now() - started
}
