// A server reduced to its sandboxes: bundled into one file, run as whichever user a test wants, told over IPC what to do.
import { join } from 'node:path'
import {
  Budget,
  createProvider,
  DEFAULT_LIMITS,
  loadPrices,
  type Owner,
  parsePolicy,
  type Runtime,
  type RuntimeSource,
  type Sandbox,
  SandboxManager,
  type SandboxProvider,
  sessionDirs,
  stageRuntime,
} from '@ash-ai/sandbox'
import { obeyOrders } from './orders.ts'

interface ServerSetup {
  dataDir: string
  agentDir: string
  source: RuntimeSource
}
export type ServerOrder =
  | { op: 'setup'; setup: ServerSetup }
  | { op: 'start'; name: string; owner?: Owner }
  | { op: 'exec'; name: string; command: string }
  | { op: 'stop'; name: string }

/** What the server answers to `start`. */
export interface StartReply {
  /** The outermost process of the sandbox. */
  pid: number
}

const sandboxes = new Map<string, Sandbox>()
let setup: ServerSetup
let runtime: Runtime
let lastPid = 0

obeyOrders(obey)

async function obey(order: ServerOrder): Promise<unknown> {
  switch (order.op) {
    case 'setup':
      setup = order.setup
      runtime = await stageRuntime(join(setup.dataDir, 'runtime'), setup.source)
      return undefined
    case 'start':
      return start(order.name, order.owner)
    case 'exec':
      return sandboxes
        .get(order.name)
        ?.bridge.call({ cmd: 'exec', command: order.command, timeoutMs: 20_000 })
    case 'stop':
      await sandboxes.get(order.name)?.stop()
      sandboxes.delete(order.name)
  }
}

async function start(name: string, owner: Owner | undefined): Promise<StartReply> {
  const manager = new SandboxManager({
    provider: tellingPid(createProvider('bwrap')),
    runtime,
    upstream: { baseUrl: 'http://127.0.0.1:9', apiKey: 'sk-the-real-key' },
    modelIdleTimeoutMs: 10_000,
    env: {},
  })
  const sandbox = await manager.start({
    sandboxId: name,
    dirs: sessionDirs(setup.dataDir, name),
    agentDir: setup.agentDir,
    owner,
    limits: DEFAULT_LIMITS,
    network: parsePolicy('none'),
    budget: new Budget(loadPrices()),
    setup: { sessionId: name, env: {} },
  })
  sandboxes.set(name, sandbox)
  return { pid: lastPid }
}

function tellingPid(provider: SandboxProvider): SandboxProvider {
  return {
    ...provider,
    async start(spec) {
      const started = await provider.start(spec)
      lastPid = started.pid
      return started
    },
  }
}
