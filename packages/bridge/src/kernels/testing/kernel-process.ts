import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  decodeReply,
  interpreterCommand,
  type Language,
  LineSplitter,
  MAX_INTERPRETER_LINE_BYTES,
  type MimeBundle,
  type RunEnd,
  type RunRequest,
} from '@ash-ai/shared'

const ROOT = fileURLToPath(new URL('../../../../../', import.meta.url))
const SOURCES = fileURLToPath(new URL('../', import.meta.url))

/** What a run sent, in its order. */
export interface Replies {
  displays: { data: MimeBundle; isValue: boolean }[]
  /** As JSON text; absent if there was none. */
  result?: string
  done: RunEnd
}

/** The programs as they are shipped, in a folder of their own. */
export function buildKernels(): string {
  const folder = mkdtempSync(join(tmpdir(), 'ash-kernels-'))
  execFileSync(process.execPath, [join(ROOT, 'scripts/bundle-bridge.mjs'), '--kernels', folder])
  return folder
}

/** An interpreter as the contract has it started, in a folder of its own. */
export class KernelProcess {
  readonly cwd: string
  readonly child: ChildProcess
  readonly exited: Promise<[number | null, NodeJS.Signals | null]>
  stdout = ''
  stderr = ''
  #lines: string[] = []
  #wake: () => void = () => {}
  #channel: Socket
  #isOver = false

  constructor(
    language: Language,
    options: { env?: Record<string, string>; kernels?: string; bash?: string } = {},
  ) {
    this.cwd = mkdtempSync(join(tmpdir(), 'ash-kernel-'))
    const [program, ...args] = interpreterCommand(language, {
      python: '/usr/bin/python3',
      node: process.execPath,
      bash: options.bash ?? '/bin/bash',
      kernels: options.kernels ?? SOURCES,
    })
    const env = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: this.cwd, ...options.env }
    this.child = spawn(program, args, { cwd: this.cwd, env, stdio: ['ignore', 'pipe', 'pipe', 'pipe'] })
    this.exited = once(this.child, 'close') as Promise<[number | null, NodeJS.Signals | null]>
    this.#channel = this.child.stdio[3] as Socket
    const splitter = new LineSplitter(MAX_INTERPRETER_LINE_BYTES)
    this.#channel.on('error', () => {}).on('close', () => this.#end())
    this.#channel.on('data', (chunk: Buffer) => {
      this.#lines.push(...splitter.push(chunk))
      this.#wake()
    })
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text
    })
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text
    })
  }

  /** Waits for the next line; throws once there will be none. */
  async next(): Promise<ReturnType<typeof decodeReply>> {
    while (this.#lines.length === 0) {
      if (this.#isOver) throw new Error(`The interpreter is gone: ${this.stderr}`)
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    return decodeReply(this.#lines.shift() ?? '')
  }

  send(request: Partial<RunRequest>): void {
    const { event, ...rest } = request
    const run = JSON.stringify({ kind: 'code', code: '', timeoutMs: 20_000, ...rest })
    this.#channel.write(`{"run":${run.slice(0, -1)}${event === undefined ? '' : `,"event":${event}`}}}\n`)
  }

  async replies(): Promise<Replies> {
    const displays: Replies['displays'] = []
    let result: string | undefined
    for (;;) {
      const reply = await this.next()
      if (reply.kind === 'display') displays.push({ data: reply.data, isValue: reply.isValue })
      else if (reply.kind === 'result') result = reply.json
      else if (reply.kind === 'done')
        return { displays, ...(result !== undefined && { result }), done: reply.end }
    }
  }

  async run(request: Partial<RunRequest> | string): Promise<Replies> {
    this.send(typeof request === 'string' ? { code: request } : request)
    return await this.replies()
  }

  /** Ends the channel: an interpreter leaves then. */
  end(text = ''): void {
    this.#channel.end(text)
  }

  interrupt(): void {
    this.child.kill('SIGINT')
  }

  async stop(): Promise<void> {
    this.child.kill('SIGKILL')
    this.#channel.destroy()
    await this.exited
    rmSync(this.cwd, { recursive: true, force: true })
  }

  #end(): void {
    this.#isOver = true
    this.#wake()
  }
}
