import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:fs'
import { chmod, chown, copyFile, link, mkdir, mkdtemp, open, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Owner, sessionDirs } from '@ash-ai/sandbox'
import { listTree, type ProcessInfo } from '@ash-ai/sandbox/testing'
import type { ExecResult } from '@ash-ai/shared'
import { build } from 'esbuild'
import { workspaceRuntime } from './runtime-source.ts'
import type { ServerOrder, StartReply } from './server-process.ts'

const SERVER_ENTRY = fileURLToPath(new URL('./server-process.ts', import.meta.url))
export const LEAKED_FD = 251
export const HOST_SECRET = 'secret-of-the-host'

/** A server process of its own with the files it needs, run as any user. All of it is gone after `dispose`. */
export class ServerHost {
  readonly dir: string
  readonly #child: ChildProcess
  readonly #replies = new Map<number, PromiseWithResolvers<unknown>>()
  #nextId = 1

  private constructor(dir: string, child: ChildProcess) {
    this.dir = dir
    this.#child = child
    child.on('message', ({ id, data, error }: { id: number; data?: unknown; error?: string }) => {
      const reply = this.#replies.get(id)
      if (error === undefined) reply?.resolve(data)
      else reply?.reject(new Error(error))
    })
    child.on('exit', () => {
      for (const reply of this.#replies.values()) reply.reject(new Error('the server is gone'))
    })
  }

  /** `user` is who the server runs as; without one, the user of this test. */
  static async start(user?: Owner): Promise<ServerHost> {
    const dir = await mkdtemp(join(tmpdir(), 'ash-boundary-'))
    await chmod(dir, 0o711)
    const { source, server } = await placeFiles(dir, user)
    const leaked = await open(join(dir, 'host-file'), 'r')
    const stdio: (number | 'ignore' | 'ipc' | 'inherit')[] = Array(LEAKED_FD + 1).fill('ignore')
    stdio[2] = 'inherit'
    stdio[3] = 'ipc'
    stdio[LEAKED_FD] = leaked.fd
    const child = spawn(source.node, [server], { env: { HOST_SECRET }, cwd: '/', stdio, ...user })
    await once(child, 'spawn')
    await leaked.close()
    const host = new ServerHost(dir, child)
    await host.#order({
      op: 'setup',
      setup: { dataDir: join(dir, 'data'), agentDir: join(dir, 'agent'), source },
    })
    return host
  }

  async startSandbox(name: string, owner?: Owner): Promise<number> {
    const { pid } = (await this.#order({ op: 'start', name, ...(owner && { owner }) })) as StartReply
    return pid
  }

  async exec(name: string, command: string): Promise<ExecResult> {
    return (await this.#order({ op: 'exec', name, command })) as ExecResult
  }

  async stopSandbox(name: string): Promise<void> {
    await this.#order({ op: 'stop', name })
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

  #order(order: ServerOrder): Promise<unknown> {
    const id = this.#nextId++
    const reply = Promise.withResolvers<unknown>()
    this.#replies.set(id, reply)
    this.#child.send({ id, order })
    return reply.promise
  }
}

/** Another user cannot read a checkout below somebody's home, so everything is put where everybody may. */
async function placeFiles(dir: string, user: Owner | undefined) {
  const { node, bridge } = workspaceRuntime()
  const source = { node: join(dir, 'node'), bridge: join(dir, 'bridge.mjs'), claude: join(dir, 'claude') }
  await link(node, source.node).catch(() => copyFile(node, source.node, constants.COPYFILE_FICLONE))
  await copyFile(bridge, source.bridge)
  await writeFile(source.claude, '#!/bin/sh\n', { mode: 0o755 }) // No turn is run here.
  await writeFile(join(dir, 'host-file'), HOST_SECRET, { mode: 0o644 })
  await mkdir(join(dir, 'agent'), { mode: 0o755 })
  await writeFile(join(dir, 'agent', 'CLAUDE.md'), 'You are a test.\n', { mode: 0o644 })
  const server = join(dir, 'server.mjs')
  await build({
    entryPoints: [SERVER_ENTRY],
    outfile: server,
    bundle: true,
    platform: 'node',
    format: 'esm',
    conditions: ['development'],
    logLevel: 'error',
  })
  for (const folder of ['data', 'data/sandboxes']) {
    await mkdir(join(dir, folder))
    await chmod(join(dir, folder), 0o711)
    if (user) await chown(join(dir, folder), user.uid, user.gid)
  }
  return { source, server }
}
