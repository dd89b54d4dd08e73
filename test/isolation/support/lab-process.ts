// A lab in a process of its own, so that its host side can be run as whichever user a test wants.
import type { LimitBackend, RuntimeSource, SandboxExit, SessionDirs } from '@ash-ai/sandbox'
import type { BridgeEvent } from '@ash-ai/shared'
import { obeyOrders } from './orders.ts'
import { type LabOptions, type LabRequest, type LabSandbox, SandboxLab } from './sandbox-lab.ts'

/** What a test may ask of a sandbox to be. */
export type WantedSandbox = Omit<LabRequest, 'onDenied' | 'onLimit'>

export type LabOrder =
  | { op: 'setup'; options: LabOptions & { source: RuntimeSource } }
  | { op: 'start'; wanted: WantedSandbox }
  | { op: 'resume'; name: string; env: Record<string, string> }
  | { op: 'exec'; name: string; command: string; timeoutMs: number }
  | { op: 'turn' | 'usage' | 'heard' | 'ended' | 'stop'; name: string }
  | { op: 'rss' | 'dispose' }

export interface SetupReply extends Pick<LimitBackend, 'enforcement'> {
  backend: LimitBackend['name']
}
export interface StartReply {
  name: string
  /** The outermost process of the sandbox. */
  pid: number
  dirs: SessionDirs
}
/** What the host side has been told by or of a sandbox. */
export interface Heard {
  isClosed: boolean
  /** Events that belong to no command. */
  unsolicited: string[]
  /** Destinations that were refused. */
  denied: string[]
  limits: { code: string; resource: string; limit: number; count: number }[]
}
export interface TurnReply {
  messages: number
  last: BridgeEvent['ev'] | undefined
}

interface Known {
  sandbox: LabSandbox
  heard: Omit<Heard, 'isClosed'>
}
const known = new Map<string, Known>()
let lab: SandboxLab | undefined

obeyOrders(obey)

async function obey(order: LabOrder): Promise<unknown> {
  switch (order.op) {
    case 'setup':
      lab = await SandboxLab.start(order.options)
      return { backend: lab.limits.name, enforcement: lab.limits.enforcement } satisfies SetupReply
    case 'start':
      return start(order.wanted)
    case 'resume':
      return resume(order.name, order.env)
    case 'exec':
      return find(order.name).sandbox.exec(order.command, order.timeoutMs)
    case 'turn':
      return turn(find(order.name).sandbox)
    case 'usage':
      return usage(find(order.name).sandbox)
    case 'heard': {
      const { sandbox, heard } = find(order.name)
      return { ...heard, isClosed: sandbox.bridge.isClosed } satisfies Heard
    }
    case 'ended': {
      const { sandbox } = find(order.name)
      const { code } = await sandbox.bridge.closed
      await sandbox.exited
      return code
    }
    case 'stop':
      return find(order.name).sandbox.stop()
    case 'rss':
      return process.memoryUsage.rss()
    case 'dispose':
      return lab?.dispose()
  }
}

async function start(wanted: WantedSandbox): Promise<StartReply> {
  if (!lab) throw new Error('the lab was not set up')
  const heard: Known['heard'] = { unsolicited: [], denied: [], limits: [] }
  const sandbox = await lab.startSandbox({
    ...wanted,
    onDenied: ({ host, port }) => heard.denied.push(`${host}:${port}`),
    onLimit: (hit) => heard.limits.push(hit),
  })
  return remember(sandbox, heard)
}

/** Once more on the same folders, with another environment. */
async function resume(name: string, env: Record<string, string>): Promise<StartReply> {
  if (!lab) throw new Error('the lab was not set up')
  const { sandbox, heard } = find(name)
  const { request } = sandbox
  return remember(await lab.resume({ ...request, setup: { ...request.setup, env } }), heard)
}

function remember(sandbox: LabSandbox, heard: Known['heard']): StartReply {
  known.set(sandbox.id, { sandbox, heard })
  sandbox.bridge.takeUnsolicited(({ ev }) => void heard.unsolicited.push(ev)).catch(() => {})
  return { name: sandbox.id, pid: sandbox.process.pid, dirs: sandbox.request.dirs }
}

async function turn({ bridge }: LabSandbox): Promise<TurnReply> {
  let messages = 0
  const { ev: last } = await bridge.run({ cmd: 'query', content: 'hi', options: {} }, ({ ev }) => {
    if (ev === 'message') messages++
  })
  return { messages, last }
}

/** An attempt may have cost the sandbox its life: then what was used up to that. */
function usage({ process, exited }: LabSandbox): Promise<SandboxExit['usage']> {
  return Promise.race([exited.then((exit) => exit.usage), process.usage()])
}

function find(name: string): Known {
  const found = known.get(name)
  if (!found) throw new Error(`there is no sandbox ${name}`)
  return found
}
