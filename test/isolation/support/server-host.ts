import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { open, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Owner, sessionDirs } from '@ash-ai/sandbox'
import { listTree, type ProcessInfo } from '@ash-ai/sandbox/testing'
import type { ExecResult } from '@ash-ai/shared'
import { Orders } from './orders.ts'
import { placeFiles } from './place-files.ts'
import type { ServerOrder, StartReply } from './server-process.ts'

export const LEAKED_FD = 251
export const HOST_SECRET = 'secret-of-the-host'

/** A server process of its own with the files it needs, run as any user. All of it is gone after `dispose`. */
export class ServerHost {
  readonly dir: string
  readonly #child: ChildProcess
  readonly #orders: Orders<ServerOrder>

  private constructor(dir: string, child: ChildProcess) {
    this.dir = dir
    this.#child = child
    this.#orders = new Orders(child)
  }

  /** `user` is who the server runs as; without one, the user of this test. */
  static async start(user?: Owner): Promise<ServerHost> {
    const { dir, source, server, agentDir, dataDir } = await placeFiles('./server-process.ts', user)
    await writeFile(join(dir, 'host-file'), HOST_SECRET, { mode: 0o644 })
    const leaked = await open(join(dir, 'host-file'), 'r')
    const stdio: (number | 'ignore' | 'ipc' | 'inherit')[] = Array(LEAKED_FD + 1).fill('ignore')
    stdio[2] = 'inherit'
    stdio[3] = 'ipc'
    stdio[LEAKED_FD] = leaked.fd
    const child = spawn(source.node, [server], { env: { HOST_SECRET }, cwd: '/', stdio, ...user })
    await once(child, 'spawn')
    await leaked.close()
    const host = new ServerHost(dir, child)
    await host.#orders.send({ op: 'setup', setup: { dataDir, agentDir, source } })
    return host
  }

  async startSandbox(name: string, owner?: Owner): Promise<number> {
    const { pid } = (await this.#orders.send({ op: 'start', name, ...(owner && { owner }) })) as StartReply
    return pid
  }

  async exec(name: string, command: string): Promise<ExecResult> {
    return (await this.#orders.send({ op: 'exec', name, command })) as ExecResult
  }

  async stopSandbox(name: string): Promise<void> {
    await this.#orders.send({ op: 'stop', name })
  }

  dirsOf(name: string) {
    return sessionDirs(join(this.dir, 'data'), name)
  }

  /** The server and everything below it. */
  listTree(): Promise<ProcessInfo[]> {
    return listTree(this.#child.pid ?? 0)
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const exited = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exited
  }

  async dispose(): Promise<void> {
    await this.kill()
    await rm(this.dir, { recursive: true, force: true })
  }
}
