import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { type MessagesApi, type Script, startMessagesApi } from '@ash-ai/offline-model'
import { unmountBelow } from '@ash-ai/sandbox/testing'
import { AshClient } from '@ash-ai/sdk'
import {
  countSandboxProcesses,
  listSandboxProcesses,
  nextUidBase,
  type ProcessInfo,
} from './sandbox-processes.ts'

const ROOT = resolve(import.meta.dirname, '../../..')
/** Staged once for all tests: the copy of Node alone takes longer than a test. */
const RUNTIME_DIR = join(tmpdir(), 'ash-test-runtime')
const UID_COUNT = 100

export interface TestServerOptions {
  script?: Script
  env?: Record<string, string>
  /** An empty folder to use instead of a new one; removed with the server as well. */
  dataDir?: string
  /** Runs the server as this user instead of the tests' own. */
  user?: { uid: number; gid: number }
}

/** A real server process with a data directory of its own and a scripted model behind it. */
export interface TestServer {
  url: string
  apiKey: string
  dataDir: string
  client: AshClient
  model: MessagesApi
  /** Everything the server has logged so far. */
  log(): string
  pid(): number
  /** Processes that run as one of this server's sandbox users. */
  sandboxProcesses(): Promise<number>
  listSandboxProcesses(): Promise<ProcessInfo[]>
  /** SIGTERM, and the exit code. */
  stop(): Promise<number | null>
  /** SIGKILL. */
  kill(): Promise<void>
  /** Starts it again on the same data; on the same port where `ASH_PORT` was given. */
  start(): Promise<void>
  /** Stops everything and removes the data. */
  close(): Promise<void>
}

export async function startTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  const model = await startMessagesApi({
    ...(options.script && { script: options.script }),
    apiKey: 'sk-real-key',
  })
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'ash-test-')))
  if (options.user) await chown(dataDir, options.user.uid, options.user.gid)
  const checkout = join(dataDir, 'checkout')
  if (options.user) await mkdir(checkout)
  const uidBase = nextUidBase(UID_COUNT)
  let child: ChildProcess | undefined
  let log = ''

  const start = async () => {
    const [command, args] = options.user
      ? asUser(options.user, checkout)
      : [process.execPath, [join(ROOT, 'scripts/server.mjs')]]
    child = spawn(command, args, {
      cwd: ROOT,
      env: {
        PATH: '/usr/local/bin:/usr/bin:/bin',
        HOME: dataDir,
        ASH_PORT: '0',
        ASH_DATA_DIR: dataDir,
        ASH_RUNTIME_DIR: RUNTIME_DIR,
        ASH_SANDBOX_UID_BASE: String(uidBase),
        ASH_SANDBOX_UID_COUNT: String(UID_COUNT),
        ANTHROPIC_BASE_URL: model.url,
        ANTHROPIC_API_KEY: 'sk-real-key',
        CLAUDE_CODE_MAX_RETRIES: '1',
        ...options.env,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child.stderr?.on('data', (chunk) => {
      log += chunk
    })
    server.url = await listening(child, (line) => {
      log += `${line}\n`
    })
    server.apiKey = options.env?.ASH_API_KEY ?? (await readFile(join(dataDir, 'api-key'), 'utf8')).trim()
    server.client = new AshClient({ baseUrl: server.url, apiKey: server.apiKey, retries: 0 })
  }
  const end = async (signal: NodeJS.Signals) => {
    if (!child || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
    return child.exitCode
  }

  const server: TestServer = {
    url: '',
    apiKey: '',
    dataDir,
    client: new AshClient(),
    model,
    log: () => log,
    pid: () => child?.pid ?? 0,
    sandboxProcesses: () => countSandboxProcesses(uidBase, UID_COUNT),
    listSandboxProcesses: () => listSandboxProcesses(uidBase, UID_COUNT),
    stop: () => end('SIGTERM'),
    kill: async () => {
      await end('SIGKILL')
    },
    start,
    async close() {
      await end('SIGTERM')
      // What a killed server left.
      for (const { pid } of await server.listSandboxProcesses()) killIfThere(pid)
      await unmountBelow(dataDir)
      await model.close()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
  await start()
  return server
}

/**
 * A checkout is often below a folder that only its owner may search. The other user gets it under a path of its own,
 * in a mount namespace that ends with the server.
 */
function asUser({ uid, gid }: { uid: number; gid: number }, checkout: string): [string, string[]] {
  const user = ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups']
  const server = [join(checkout, 'node_modules/.bin/node'), join(checkout, 'scripts/server.mjs')]
  const script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
  return ['unshare', ['--mount', '--', 'sh', '-c', script, 'sh', ROOT, checkout, ...user, ...server]]
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // Gone by itself.
  }
}

async function listening(child: ChildProcess, onLine: (line: string) => void): Promise<string> {
  const { promise, resolve: found, reject } = Promise.withResolvers<string>()
  const seen: string[] = []
  if (!child.stdout) throw new Error('the server has no stdout')
  createInterface({ input: child.stdout }).on('line', (line) => {
    onLine(line)
    seen.push(line)
    const url = /"url":"([^"]+)".*"msg":"Ash is listening"/.exec(line)?.[1]
    if (url !== undefined) found(url)
  })
  child.once('exit', (code) => reject(new Error(`the server exited with ${code}:\n${seen.join('\n')}`)))
  return promise
}
