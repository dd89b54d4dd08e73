import { fork } from 'node:child_process'
import { once } from 'node:events'
import { alternate } from '../lifecycle/alternate.ts'
import { timesFloor, timesLine, timesTable, within } from '../lifecycle/tables.ts'
import { BarePython, runBarePython } from '../support/bare-python.ts'
import { JsonConnection } from '../support/json-connection.ts'
import { timed } from '../support/timed.ts'
import { CODE, ExecuteLab } from './execute-lab.ts'

const SPARES = 2
const ONCE_ROUNDS = { rounds: 100, warmUp: 10 }
const KERNEL_ROUNDS = { rounds: 400, warmUp: 50 }
const MOST_TIMES_FLOOR = 1.5

/** One run that leaves nothing, with an interpreter ready and without. */
export function single(): Promise<string[]> {
  return ExecuteLab.use({}, async (lab) => {
    const warm = await lab.template('bench-warm', SPARES)
    await lab.server.client.templates.create({ name: 'bench-cold', runtime: 'python3' })
    const runner = await lab.connect()
    const times = await alternate(ONCE_ROUNDS, {
      bare: () => timed(() => runBarePython(CODE)),
      cold: () => runner.once('bench-cold', 'cold'),
      ready: () => timed(() => lab.spares(SPARES)),
      warm: () => runner.once(warm, 'warm'),
    })
    return [
      `\`POST /api/execute\` of \`${CODE}\` until the reply is there: session and execution stored, run in a sandbox of its own,`,
      'output and outcome durable. Warm: an interpreter waits in its sandbox; it is replaced after the reply. One client.',
      '',
      ...timesTable(
        timesLine(`bare \`bwrap python3 -c '${CODE}'\` (floor)`, times.bare),
        timesLine('**once, cold**', times.cold, timesFloor(times.cold, times.bare, MOST_TIMES_FLOOR)),
        timesLine('**once, warm**', times.warm, within(10)),
      ),
    ]
  })
}

/** A run in an interpreter that keeps its variables. */
export async function kernel(): Promise<string[]> {
  const bareServer = fork(new URL('../support/bare-fastify.ts', import.meta.url))
  const bare = new BarePython()
  try {
    const [port] = await once(bareServer, 'message')
    const floor = await JsonConnection.open(`http://127.0.0.1:${port}`)
    const times = await ExecuteLab.use({}, async (lab) => {
      const id = await lab.session()
      const runner = await lab.connect()
      return alternate(KERNEL_ROUNDS, {
        fastify: async () => (await floor.post('/')).ms,
        python: () => timed(() => bare.exec(CODE)),
        kernel: () => runner.inKernel(id),
      })
    }).finally(() => floor.close())
    return [
      '`POST …/execute` in the kernel of a persistent session with an empty workspace, one client. Floors: a request to bare',
      'Fastify; a bare Python that runs the line, over a pipe, without a sandbox. A run needs both.',
      '',
      ...timesTable(
        timesLine('bare Fastify request (floor)', times.fastify),
        timesLine('bare Python over a pipe (floor)', times.python),
        timesLine('**in a kernel**', times.kernel, within(3)),
      ),
    ]
  } finally {
    bareServer.disconnect()
    bare.close()
  }
}
