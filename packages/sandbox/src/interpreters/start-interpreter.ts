import type { Language } from '@ash-ai/shared'
import type { Layer } from '../layer.ts'
import type { DiskBackend } from '../limits/disk/disk-backend.ts'
import type { ResourceLimits } from '../limits/resource-limits.ts'
import type { LimitHit } from '../limits/watch-limits.ts'
import { makeFolders } from '../make-folders.ts'
import type { InterpreterProcess, Owner, SandboxProvider } from '../provider.ts'
import type { Runtime } from '../runtime.ts'
import type { SessionDirs } from '../session-dirs.ts'
import { asStartFailure } from '../start-failure.ts'
import { DirectInterpreter } from './direct-interpreter.ts'

const READY_TIMEOUT_MS = 20_000

/** What an interpreter in a sandbox of its own needs. */
export interface InterpreterRequest {
  sandboxId: string
  language: Language
  dirs: SessionDirs
  /** New folders begin as a copy of this instead of empty. */
  layer?: Layer | undefined
  owner: Owner | undefined
  limits: ResourceLimits
  /** Variables of the template, over what is set for every sandbox. A run brings its session's own. */
  env?: Record<string, string> | undefined
  /** Hears of limits that were met. */
  onLimit?: ((hit: LimitHit) => void) | undefined
}

interface StartDeps {
  provider: SandboxProvider
  disk: DiskBackend
  runtime: Runtime
  env: Record<string, string>
}

/** Folders + interpreter, ready for code, without a bridge and a network. What fails is taken down again. */
export async function startInterpreter(
  deps: StartDeps,
  request: InterpreterRequest,
): Promise<DirectInterpreter> {
  const { disk } = deps
  const { sandboxId: id, language, dirs, limits, onLimit } = request
  deps.provider.expectStart()
  try {
    await makeFolders(disk, request, { isBrief: true })
  } catch (error) {
    throw asStartFailure(error, request)
  }
  let process: InterpreterProcess
  try {
    process = await startProcess(deps, request)
  } catch (error) {
    disk.release(dirs)
    throw asStartFailure(error, request)
  }
  const interpreter = new DirectInterpreter(process, { id, language, dirs, limits, disk, onLimit })
  const reason = await whyNotReady(interpreter)
  if (reason === undefined) return interpreter
  await interpreter.stop()
  throw interpreter.startFailure(reason)
}

function startProcess({ provider, runtime, env }: StartDeps, request: InterpreterRequest) {
  const { sandboxId, language, dirs, owner, limits } = request
  const spec = {
    id: sandboxId,
    runtime,
    workspaceDir: dirs.workspace,
    homeDir: dirs.home,
    owner,
    limits,
    env: { ...env, ...request.env },
  }
  return provider.startInterpreter(spec, language)
}

async function whyNotReady({ ready }: DirectInterpreter): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<string>((resolve) => {
    const text = `the interpreter was not ready within ${READY_TIMEOUT_MS / 1000} s`
    timer = setTimeout(() => resolve(text), READY_TIMEOUT_MS)
  })
  const reason = await Promise.race([
    ready.then(
      () => undefined,
      (error: Error) => error.message,
    ),
    late,
  ])
  clearTimeout(timer)
  return reason
}
