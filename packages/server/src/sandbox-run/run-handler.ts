import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  assertReachable,
  chooseLimits,
  createProvider,
  type DirectInterpreter,
  expectOutput,
  type Owner,
  PolledDisk,
  type ResourceLimits,
  type Runtime,
  type SandboxProvider,
  type SessionDirs,
  startInterpreter,
} from '@ash-ai/sandbox'
import type { OutputPiece, RunOutcome, RunRequest } from '@ash-ai/shared'
import { EXIT, RunStop } from './exit-codes.ts'
import type { Inputs } from './inputs.ts'
import { stagedRuntime } from './staged-runtime.ts'

/** Where on this machine, and as whom. */
export interface RunHost {
  runtimeDir: string
  bridgeEntry: string | undefined
  /** Undefined where this is not root: then the sandbox has a user namespace. */
  owner: Owner | undefined
}

export interface HandlerRun {
  language: Inputs['language']
  request: RunRequest
  limits: ResourceLimits
}

/** What became of it, and what held it. */
export interface HandlerReport {
  outcome: RunOutcome
  stdout: string
  stderr: string
  limits: SandboxProvider['limits']
}

/** Control groups of all such runs are below this one. */
const GROUP = 'ash-run'

/**
 * Runs a handler in a sandbox that is made for it, and gone with everything in it when this returns. Throws `RunStop`
 * where there can be no sandbox. An aborted signal ends the handler as `cancelled`.
 */
export async function runHandler(
  host: RunHost,
  run: HandlerRun,
  signal: AbortSignal,
): Promise<HandlerReport> {
  expectOutput() // By another process, which takes a while.
  const disk = new PolledDisk()
  const [runtime, limits] = await Promise.all([stage(host), chooseLimits(GROUP, host.owner !== undefined)])
  const dirs = await makeDirs(host.owner !== undefined)
  const provider = createProvider('bwrap', limits, disk.enforcement)
  let interpreter: DirectInterpreter | undefined
  try {
    interpreter = await startInterpreter(
      { provider, disk, runtime, env: {} },
      { sandboxId: sandboxId(), language: run.language, dirs, owner: host.owner, limits: run.limits },
    )
    return { ...(await runIn(interpreter, run.request, signal)), limits: provider.limits }
  } catch (error) {
    throw await explain(error, provider, runtime, host)
  } finally {
    await interpreter?.stop()
    await disk.remove(dirs)
  }
}

/** No two runs have it at the same time. */
const sandboxId = () => `${process.pid}-${Date.now().toString(36)}`

async function stage({ runtimeDir, bridgeEntry }: RunHost): Promise<Runtime> {
  try {
    return await stagedRuntime(runtimeDir, bridgeEntry)
  } catch (error) {
    const reason = error instanceof Error ? error.message : ''
    throw new RunStop(EXIT.noSandbox, `Cannot prepare ${runtimeDir}: ${reason}`, { cause: error })
  }
}

async function runIn(
  interpreter: DirectInterpreter,
  request: RunRequest,
  signal: AbortSignal,
): Promise<Omit<HandlerReport, 'limits'>> {
  const output = { stdout: '', stderr: '' }
  const take = ({ stream, text }: OutputPiece) => {
    output[stream] += text
  }
  const stop = () => void interpreter.stop().catch(() => {}) // Told to whoever waits for the run.
  signal.addEventListener('abort', stop)
  try {
    if (signal.aborted) stop()
    return { outcome: await interpreter.run(request, take), ...output }
  } finally {
    signal.removeEventListener('abort', stop)
  }
}

/** In a folder that the sandbox's user can reach; the names in it are nobody's business. */
async function makeDirs(hasOwnUser: boolean): Promise<SessionDirs> {
  const root = await mkdtemp(join(await findTemp(hasOwnUser), 'ash-run-'))
  const disk = join(root, 'disk')
  return { root, disk, workspace: join(disk, 'workspace'), home: join(disk, 'home'), run: join(root, 'run') }
}

async function findTemp(hasOwnUser: boolean): Promise<string> {
  if (!hasOwnUser) return tmpdir()
  let failure: unknown
  for (const folder of new Set([tmpdir(), '/tmp', '/var/tmp'])) {
    try {
      await assertReachable(folder)
      return folder
    } catch (error) {
      failure ??= error
    }
  }
  const reason = failure instanceof Error ? failure.message : ''
  throw new RunStop(EXIT.noSandbox, reason, { cause: failure })
}

/** Looked for only now: a sandbox that starts needs no proof that one can. */
async function explain(
  error: unknown,
  provider: SandboxProvider,
  runtime: Runtime,
  { owner }: RunHost,
): Promise<RunStop> {
  if (error instanceof RunStop) return error
  const known = await provider
    .check()
    .then(() => (owner ? assertReachable(runtime.dir) : undefined))
    .then(
      () => error,
      (reason: unknown) => reason,
    )
  const said = known instanceof Error ? known.message : String(known)
  const cause = known instanceof Error && known.cause instanceof Error ? ` (${known.cause.message})` : ''
  return new RunStop(EXIT.noSandbox, `${said}${cause}`, { cause: error })
}
