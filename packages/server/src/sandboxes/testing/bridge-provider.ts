import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { SandboxExit, SandboxProcess, SandboxProvider } from '@ash-ai/sandbox'
import { type BridgeCommand, encodeLine, UNSOLICITED } from '@ash-ai/shared'

type BridgeSpec = Parameters<SandboxProvider['start']>[0]

/** A sandbox of the provider below. */
export interface FakeSandbox {
  spec: BridgeSpec
  commands: BridgeCommand[]
  /** It ends by itself. */
  die: () => void
}

const NOTHING_USED = {
  memoryBytes: 0,
  peakMemoryBytes: 0,
  cpuMs: 0,
  processes: 0,
  oomKills: 0,
  processesRefused: 0,
}

/** Bridges at the other end of real sockets, which answer every command, and nothing around them. */
export class BridgeProvider {
  readonly sandboxes: FakeSandbox[] = []
  /** Thrown by starts while it is set. */
  failure: Error | undefined
  /** Starts wait for this. */
  gate: Promise<void> | undefined
  readonly #dir: string

  constructor(dir: string) {
    this.#dir = dir
  }

  get provider(): SandboxProvider {
    const start = (spec: BridgeSpec) => this.#start(spec)
    return { start, expectStart: () => {} } as unknown as SandboxProvider
  }

  async #start(spec: BridgeSpec): Promise<SandboxProcess> {
    if (this.failure) throw this.failure
    await this.gate
    const path = join(this.#dir, `bridge-${this.sandboxes.length}.sock`)
    const server = createServer().listen(path)
    await once(server, 'listening')
    const accepted = once(server, 'connection')
    const stream = connect(path)
    const [bridge] = (await accepted) as [Socket]
    const exit = Promise.withResolvers<SandboxExit>()
    const die = () => {
      stream.destroy()
      bridge.destroy()
      server.close()
      exit.resolve({ code: 1, signal: null, stderr: 'out of luck', usage: NOTHING_USED })
    }
    const sandbox: FakeSandbox = { spec, commands: [], die }
    this.sandboxes.push(sandbox)
    createInterface({ input: bridge.on('error', () => {}) }).on('line', (line) => {
      const command = JSON.parse(line) as BridgeCommand
      sandbox.commands.push(command)
      bridge.write(encodeLine({ ev: 'result', id: command.id, data: {} }))
    })
    bridge.write(encodeLine({ ev: 'ready', id: UNSOLICITED }))
    return {
      pid: 0,
      settled: Promise.resolve(),
      stream,
      exited: exit.promise,
      usage: async () => NOTHING_USED,
      hits: () => NOTHING_USED,
      pids: () => undefined,
      freeze: async () => false,
      thaw: () => {},
      enclose: () => undefined,
      kill: async () => die(),
    }
  }
}
