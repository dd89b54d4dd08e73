import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import http from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import {
  BridgeClient,
  type BridgeSpec,
  chooseLimits,
  createRlimitBackend,
  DEFAULT_LIMITS,
  type SandboxProvider,
  stageRuntime,
} from '@ash-ai/sandbox'
import { createBwrapProvider, listTree } from '@ash-ai/sandbox/testing'
import { AshError } from '@ash-ai/shared'
import { nextOwner } from '../isolation/support/provider-fixture.ts'
import { workspaceRuntime } from '../isolation/support/runtime-source.ts'
import { SandboxLab } from '../isolation/support/sandbox-lab.ts'
import { interleave, ms, row, type Summary, summaryRow } from './support/samples.ts'

const STARTS = 60
const MODEL_WARM_UP = 200
const MODEL_REQUESTS = 1_500
const COPY_BYTES = 256 * 1024 * 1024
const COPIES = 7
const NEIGHBOUR_EXECS = 60
const run = promisify(execFile)
const HEAD = ['ms', 'n', 'p50', 'p95', 'p99', 'ratio p50']
const RULE = HEAD.map(() => '---')

/** What the boundary costs: at the start, on the way to the model, on the way out, and beside a hostile neighbour. */
export async function isolation(): Promise<string[]> {
  const parts = [await startTimes(), await proxies(), await neighbours()]
  return parts.flatMap((lines, index) => (index === 0 ? lines : ['', ...lines]))
}

async function startTimes(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-bench-'))
  const limits = await chooseLimits(`ash-bench-${process.pid}`, true)
  try {
    const spec = await makeSpec(dir)
    const wrapper = async (name: string) => {
      const path = join(dir, name)
      await copyFile(join(import.meta.dirname, 'support/strip-seccomp.pl'), path)
      await chmod(path, 0o755)
      return path
    }
    const [both, filterOnly, neither] = [
      createBwrapProvider(limits, 'polled', await wrapper('bwrap-with')),
      createBwrapProvider(createRlimitBackend(true), 'polled', await wrapper('bwrap-with-filter')),
      createBwrapProvider(createRlimitBackend(true), 'polled', await wrapper('bwrap-without')),
    ]
    const plain = createBwrapProvider(limits, 'polled')
    await assertFiltered(both, spec, true)
    await assertFiltered(neither, spec, false)
    const samples = await interleave(STARTS, {
      bwrap: () => timed(() => run('bwrap', ['--ro-bind', '/', '/', '/bin/true'])),
      node: () => timed(() => run(process.execPath, ['-e', '0'])),
      plain: () => untilReady(plain, spec),
      neither: () => untilReady(neither, spec),
      filterOnly: () => untilReady(filterOnly, spec),
      both: () => untilReady(both, spec),
    })
    const of = (name: string): Summary => samples[name] ?? { n: 0, p50: 0, p95: 0, p99: 0 }
    const base = of('neither').p50
    const against = (name: string) => (of(name).p50 / base).toFixed(2)
    const addedMs = of('both').p50 - base
    const share = (100 * addedMs) / (of('plain').p50 - addedMs)
    return [
      `From the spawn of a sandbox to its bridge’s first line (limits: ${limits.name}). The lower three start through the`,
      'same small wrapper, which takes the filter out where it says so; what they differ in is the cost. Target: ≤ 1.20.',
      '',
      row(...HEAD),
      row(...RULE),
      summaryRow('bare `bwrap true`', of('bwrap'), against('bwrap')),
      summaryRow('bare `node -e 0`', of('node'), against('node')),
      summaryRow('sandbox, as it is started', of('plain'), against('plain')),
      summaryRow('wrapped, no filter, no control groups (base)', of('neither'), '1.00'),
      summaryRow('wrapped, filter alone', of('filterOnly'), against('filterOnly')),
      summaryRow('**wrapped, filter and control groups**', of('both'), `**${against('both')}**`),
      '',
      `Filter and control groups add ${ms(addedMs)} ms; to a start without the wrapper’s own time that is **${share.toFixed(0)} %**.`,
    ]
  } finally {
    await limits.close()
    await rm(dir, { recursive: true, force: true })
  }
}

async function makeSpec(dir: string): Promise<BridgeSpec> {
  await chmod(dir, 0o711)
  const owner = nextOwner()
  const make = async (name: string) => {
    const path = join(dir, name)
    await mkdir(path, { mode: 0o755 })
    if (owner) await chown(path, owner.uid, owner.gid)
    return path
  }
  // Nothing is asked of the proxies here: any file can be bound in their sockets’ place.
  const socket = join(dir, 'socket')
  await writeFile(socket, '')
  return {
    id: `bench-${process.pid}`,
    runtime: await stageRuntime(join(dir, 'runtime'), workspaceRuntime()),
    agentDir: await make('agent'),
    workspaceDir: await make('workspace'),
    homeDir: await make('home'),
    modelSocket: socket,
    egressSocket: socket,
    owner,
    limits: DEFAULT_LIMITS,
    env: {},
  }
}

async function untilReady(provider: SandboxProvider, spec: BridgeSpec): Promise<number> {
  const started = performance.now()
  const sandbox = await provider.start(spec)
  const bridge = new BridgeClient(sandbox.stream)
  const end = await Promise.race([bridge.ready.then(() => performance.now()), sandbox.exited])
  bridge.close(new AshError('sandbox_died', 'measured'))
  await sandbox.kill()
  if (typeof end !== 'number') throw new Error(`the sandbox died: ${end.stderr}`)
  return end - started
}

/** The comparison is worth nothing if the wrapper does not do what it says. */
async function assertFiltered(
  provider: SandboxProvider,
  spec: BridgeSpec,
  isFiltered: boolean,
): Promise<void> {
  const sandbox = await provider.start(spec)
  await new BridgeClient(sandbox.stream).ready
  const bridge = (await listTree(sandbox.pid)).find(({ args }) => args[0] === '/opt/ash/node')
  const status = await readFile(`/proc/${bridge?.pid}/status`, 'utf8')
  await sandbox.kill()
  if (status.includes('Seccomp:\t2') !== isFiltered) throw new Error(`filtered is not ${isFiltered}`)
}

async function proxies(): Promise<string[]> {
  const model = http.createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write('event: ping\ndata: {}\n\n')
      setImmediate(() => response.end('event: message_stop\ndata: {}\n\n'))
    })
  })
  const source = createServer((socket) => void socket.on('error', () => {}).once('data', () => pour(socket)))
  const [modelPort, sourcePort] = [await listen(model), await listen(source)]
  const upstream = { baseUrl: `http://127.0.0.1:${modelPort}`, apiKey: 'key' }
  const lab = await SandboxLab.start({ upstream })
  try {
    const sandbox = await lab.startSandbox({ network: [`127.0.0.1:${sourcePort}`] })
    const token = (await sandbox.exec('echo $ANTHROPIC_API_KEY')).stdout.trim()
    const { run: sockets } = sandbox.request.dirs
    const firstByte = {
      direct: () => timeFirstByte({ port: modelPort, host: '127.0.0.1' }, token),
      proxied: () => timeFirstByte({ socketPath: join(sockets, 'model.sock') }, token),
    }
    await interleave(MODEL_WARM_UP, firstByte)
    const { direct, proxied } = await interleave(MODEL_REQUESTS, firstByte)
    const copies = await interleave(COPIES, {
      direct: () => timeCopy(connect(sourcePort, '127.0.0.1')),
      proxied: () => timeCopy(connect(join(sockets, 'egress.sock')), `127.0.0.1:${sourcePort}`),
    })
    if (!direct || !proxied || !copies.direct || !copies.proxied) throw new Error('no samples')
    const rate = ({ p50 }: Summary) => `${Math.round(COPY_BYTES / 1024 / 1024 / (p50 / 1000))} MB/s`
    return [
      'The first byte of a streamed answer from a local model API, straight and through the model proxy, which reads,',
      'checks and meters the request. Kept connections. Target: ≤ 1 ms added at p50.',
      '',
      row(...HEAD),
      row(...RULE),
      summaryRow('direct (floor)', direct, '1.0'),
      summaryRow('through the model proxy', proxied, (proxied.p50 / direct.p50).toFixed(1)),
      row(
        '**added**',
        '',
        `**${ms(proxied.p50 - direct.p50)}**`,
        ms(proxied.p95 - direct.p95),
        ms(proxied.p99 - direct.p99),
        '',
      ),
      '',
      `${COPY_BYTES / 1024 / 1024} MB from a port of this host: straight over loopback, and by CONNECT through the egress proxy. All ends are`,
      'one process, so the proxied copy moves every byte twice on one core.',
      '',
      row('ms', 'n', 'p50', 'p95', 'rate p50', 'ratio p50'),
      row(...RULE),
      ...(['direct', 'proxied'] as const).map((name) => {
        const { n, p50, p95 } = copies[name] as Summary
        const ratio = (p50 / (copies.direct as Summary).p50).toFixed(1)
        return row(
          name === 'direct' ? 'direct copy (floor)' : 'through the egress proxy',
          n,
          ms(p50),
          ms(p95),
          rate(copies[name] as Summary),
          ratio,
        )
      }),
    ]
  } finally {
    await lab.dispose()
    model.closeAllConnections()
    model.close()
    source.close()
  }
}

const agent = new http.Agent({ keepAlive: true })
const BODY = JSON.stringify({
  model: 'claude-haiku-4-5',
  max_tokens: 100,
  stream: true,
  messages: [{ role: 'user', content: 'A prompt of some length. '.repeat(200) }],
})

function timeFirstByte(where: { port: number; host: string } | { socketPath: string }, token: string) {
  return new Promise<number>((resolve, reject) => {
    const headers = {
      'x-api-key': token,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(BODY),
    }
    const started = performance.now()
    const request = http.request(
      { ...where, agent, method: 'POST', path: '/v1/messages', headers },
      (response) => {
        let firstMs = Number.NaN
        response.once('data', () => {
          firstMs = performance.now() - started
        })
        response.resume().on('end', () => {
          if (response.statusCode === 200) resolve(firstMs)
          else reject(new Error(`the model answered ${response.statusCode}`))
        })
      },
    )
    request.on('error', reject).end(BODY)
  })
}

function pour(socket: Socket): void {
  const chunk = Buffer.alloc(64 * 1024)
  let left = COPY_BYTES
  const more = () => {
    while (left > 0) {
      left -= chunk.length
      if (!socket.write(chunk)) return void socket.once('drain', more)
    }
    socket.end()
  }
  more()
}

async function timeCopy(socket: Socket, tunnelTo?: string): Promise<number> {
  if (tunnelTo !== undefined) {
    socket.write(`CONNECT ${tunnelTo} HTTP/1.1\r\nHost: ${tunnelTo}\r\n\r\n`)
    const [reply] = (await once(socket, 'data')) as [Buffer]
    if (!reply.toString().startsWith('HTTP/1.1 200')) throw new Error(reply.toString())
  }
  let received = 0
  const started = performance.now()
  socket.on('data', (chunk: Buffer) => {
    received += chunk.length
  })
  socket.write('go')
  await once(socket, 'end')
  socket.destroy()
  if (received !== COPY_BYTES) throw new Error(`${received} bytes arrived`)
  return performance.now() - started
}

/** A well-behaved sandbox beside one that takes all the processor time it can get. */
async function neighbours(): Promise<string[]> {
  const lab = await SandboxLab.start()
  try {
    const [good, hog] = [await lab.startSandbox(), await lab.startSandbox({ limits: { cpus: 1 } })]
    const exec = () => timed(() => good.exec('true'))
    const { alone } = await interleave(NEIGHBOUR_EXECS, { alone: exec })
    const spin = 'for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait'
    const hogging = hog.exec(spin, 60_000).catch(() => undefined)
    const { beside } = await interleave(NEIGHBOUR_EXECS, { beside: exec })
    await hog.stop()
    await hogging
    if (!alone || !beside) throw new Error('no samples')
    return [
      '`exec true` in a sandbox, alone and beside another that spins in eight processes under a limit of one core:',
      '',
      row(...HEAD),
      row(...RULE),
      summaryRow('alone', alone, '1.0'),
      summaryRow('beside the hog', beside, (beside.p50 / alone.p50).toFixed(1)),
    ]
  } finally {
    await lab.dispose()
  }
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now()
  await work()
  return performance.now() - started
}
