import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

const BWRAP = [
  ...['--unshare-user', '--unshare-all', '--disable-userns', '--ro-bind', '/usr', '/usr'],
  ...['--symlink', 'usr/bin', '/bin', '--symlink', 'usr/lib', '/lib', '--symlink', 'usr/lib64', '/lib64'],
  ...['--proc', '/proc', '--dev', '/dev'],
]

/** The least that any sandbox with Python in it has to start. */
export async function runBarePython(code: string): Promise<void> {
  await run('bwrap', [...BWRAP, '/usr/bin/python3', '-c', code])
}

const LOOP = 'import sys\nfor line in sys.stdin:\n  exec(line)\n  print("end", flush=True)'

/** A Python that runs one line after another, with nothing around it: the least that a kernel does. */
export class BarePython {
  readonly #child: ChildProcess

  constructor() {
    this.#child = spawn('/usr/bin/python3', ['-c', LOOP], { stdio: ['pipe', 'pipe', 'inherit'], env: {} })
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  async exec(line: string): Promise<void> {
    const { stdin, stdout } = this.#child
    const { promise, resolve } = Promise.withResolvers<void>()
    const take = (chunk: Buffer) => {
      if (chunk.includes('end')) resolve()
    }
    stdout?.on('data', take)
    stdin?.write(`${line}\n`)
    await promise
    stdout?.off('data', take)
  }

  close(): void {
    this.#child.kill('SIGKILL')
  }
}
