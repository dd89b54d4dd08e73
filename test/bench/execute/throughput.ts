import { table } from '../lifecycle/tables.ts'
import { runBarePython } from '../support/bare-python.ts'
import { ms, row, summarize } from '../support/samples.ts'
import { timed } from '../support/timed.ts'
import { CODE, ExecuteLab } from './execute-lab.ts'

const CLIENTS = [1, 8, 32]
const SECONDS = 5
const AT_ONCE = 100
const ENV = { ASH_MAX_SANDBOXES: '150' }

/** Executions per second with several clients, each sending the next when it has its answer. */
export function throughput(): Promise<string[]> {
  return ExecuteLab.use(ENV, async (lab) => {
    const lines: string[] = []
    for (const clients of CLIENTS) {
      const runners = await Promise.all(Array.from({ length: clients }, () => lab.connect()))
      const sessions = await Promise.all(runners.map(() => lab.session()))
      await Promise.all(runners.map((runner, n) => runner.inKernel(sessions[n] ?? '')))
      const kinds = {
        [`bare \`bwrap python3 -c '${CODE}'\` (floor)`]: () => timed(() => runBarePython(CODE)),
        'once (`POST /api/execute`)': (n: number) => runners[n]?.once('python') ?? Promise.reject(),
        'in a kernel, one session each': (n: number) =>
          runners[n]?.inKernel(sessions[n] ?? '') ?? Promise.reject(),
      }
      for (const [name, work] of Object.entries(kinds)) lines.push(await line(name, clients, work))
      await Promise.all(sessions.map((id) => lab.server.client.sessions.end(id)))
    }
    return [
      `${SECONDS} seconds each, ${CLIENTS.join(', ')} clients; interpreters are ready only as far as the built-in template keeps some.`,
      '',
      ...table(['clients', 'what', 'per second', 'p50 ms', 'p99 ms'], ...lines),
    ]
  })
}

async function line(name: string, clients: number, work: (n: number) => Promise<number>): Promise<string> {
  const started = performance.now()
  const until = started + SECONDS * 1000
  const times: number[] = []
  const loop = async (n: number) => {
    while (performance.now() < until) times.push(await work(n))
  }
  await Promise.all(Array.from({ length: clients }, (_, n) => loop(n)))
  const perSecond = times.length / ((performance.now() - started) / 1000)
  const { p50, p99 } = summarize(times)
  return row(clients, name, perSecond.toFixed(1), ms(p50), ms(p99))
}

/** A hundred single runs asked for at the same moment. */
export function burst(): Promise<string[]> {
  return ExecuteLab.use(ENV, async (lab) => {
    const runners = await Promise.all(Array.from({ length: AT_ONCE }, () => lab.connect()))
    await runners[0]?.once('python')
    const atOnce = async (work: (n: number) => Promise<number>) => {
      const started = performance.now()
      const times = await Promise.all(runners.map((_, n) => work(n)))
      return { times, allMs: performance.now() - started }
    }
    const bare = await atOnce(() => timed(() => runBarePython(CODE)))
    const ash = await atOnce((n) => runners[n]?.once('python') ?? Promise.reject())
    const shown = (name: string, { times, allMs }: typeof ash) => {
      const { n, p50, p99 } = summarize(times)
      return row(name, n, ms(p50), ms(p99), ms(allMs), (allMs / bare.allMs).toFixed(2))
    }
    return [
      `${AT_ONCE} \`POST /api/execute\` at the same moment; all succeed.`,
      '',
      ...table(
        ['ms', 'n', 'p50', 'p99', 'until the last', '× floor'],
        shown(`bare \`bwrap python3 -c '${CODE}'\`, all at once (floor)`, bare),
        shown('**once, all at once**', ash),
      ),
    ]
  })
}
