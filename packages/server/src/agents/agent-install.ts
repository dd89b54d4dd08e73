import { access } from 'node:fs/promises'
import { join } from 'node:path'
import {
  type NetworkPolicy,
  packageEnv,
  type Sandbox,
  type SandboxPaths,
  type SessionDirs,
} from '@ash-ai/sandbox'
import { AshError, type EgressDeniedEventData, ExecReply, type LimitEventData } from '@ash-ai/shared'
import { type InstallStep, type PackageIndexes, packageSteps } from './agent-packages.ts'
import type { Blueprint } from './blueprint.ts'

const SCRIPT_TIMEOUT_MS = 300_000
const PACKAGES_TIMEOUT_MS = 600_000
/** What the sandbox gets beyond that to say how it ended. */
const ANSWER_MARGIN_MS = 30_000
const MAX_SHOWN_CHARS = 16_000
const MAX_REASON_CHARS = 500
const MAX_FAULT_CHARS = 2_000

/** What the set-up says for the log of every session that it is done for. */
export type SetupNote =
  | { type: 'log'; data: { level: 'info' | 'error'; source: string; text: string } }
  | { type: 'limit'; data: LimitEventData }
  | { type: 'egress_denied'; data: EgressDeniedEventData }

/** What this server knows of installing. */
export interface InstallHost {
  indexes: PackageIndexes
  /** Where things are as a sandbox sees them. */
  pathsInside: (dirs: SessionDirs) => Pick<SandboxPaths, 'home' | 'nodeDir'>
}

export interface SetupRun {
  sandbox: Sandbox
  /** Its scripts run as they were deployed, whatever became of the copies in the workspace. */
  blueprint: Pick<Blueprint, 'dir' | 'packages' | 'python'>
  note: (note: SetupNote) => unknown
}

/** Whether anything is to be done before such a session can begin. */
export async function needsInstall(blueprint: Pick<Blueprint, 'dir' | 'packages'>): Promise<boolean> {
  const { packages } = blueprint
  return hasPackages(packages.pip) || hasPackages(packages.npm) || (await hasScript(blueprint, 'install.sh'))
}

/** Variables by which packages are found, also those that are installed in a session later. */
export function installedEnv(
  { pathsInside }: InstallHost,
  { packages, runtime }: Pick<Blueprint, 'packages' | 'runtime'>,
  dirs: SessionDirs,
): Record<string, string> {
  const python = runtime?.startsWith('python') ? { ASH_PYTHON: runtime } : {}
  const { VIRTUAL_ENV, ...paths } = packageEnv(pathsInside(dirs), { pip: true, npm: true })
  // Tools take the variable for a promise that the environment is there.
  const venv = VIRTUAL_ENV !== undefined && hasPackages(packages.pip) ? { VIRTUAL_ENV } : {}
  return { ...python, ...paths, ...venv }
}

/** Installs the packages, then runs the agent's install.sh, inside the sandbox. Throws `setup_failed`. */
export async function install({ indexes }: InstallHost, run: SetupRun, policy: NetworkPolicy): Promise<void> {
  for (const step of packageSteps(run.blueprint, indexes, policy)) {
    await runStep(run, step, PACKAGES_TIMEOUT_MS)
  }
  await runScript(run, 'install.sh')
}

export const hasScript = async ({ dir }: Pick<Blueprint, 'dir'>, name: 'install.sh' | 'startup.sh') =>
  dir !== undefined && (await exists(join(dir, name)))

/** Runs a script of the agent, if it has it. Throws `setup_failed`. */
export async function runScript(run: SetupRun, name: 'install.sh' | 'startup.sh'): Promise<void> {
  if (!(await hasScript(run.blueprint, name))) return
  // By its path: the agent may have put another bash where its own programs are.
  await runStep(run, { name, command: `exec /bin/bash "$ASH_AGENT_DIR/${name}"` }, SCRIPT_TIMEOUT_MS)
}

/** Runs one command of a set-up. Its output is told to `note`; what fails is `setup_failed`, with why. */
export async function runStep(
  { sandbox, blueprint, note }: Omit<SetupRun, 'blueprint'> & { blueprint: Pick<Blueprint, 'dir'> },
  { name, command, missing }: Pick<InstallStep, 'name' | 'command'> & Partial<InstallStep>,
  timeoutMs: number,
): Promise<void> {
  const what = `${name}${blueprint.dir === undefined ? '' : ' of the agent'}`
  const reply = await execWithin(sandbox, what, command, timeoutMs)
  const result = ExecReply.safeParse(reply)
  if (!result.success)
    throw new AshError('bridge_protocol_error', `The sandbox did not say how ${name} ended`)
  const { stdout, exitCode, signal, timedOut } = result.data
  const level = exitCode === 0 ? 'info' : 'error'
  await note({ type: 'log', data: { level, source: name, text: stdout.slice(-MAX_SHOWN_CHARS) } })
  if (exitCode === 0) return
  const end = reasonIn(stdout)
  if (missing && exitCode === missing.exitCode)
    throw new AshError('setup_failed', `${what} cannot run. ${missing.remedy} (${end})`)
  const how = timedOut ? `took longer than ${timeoutMs / 1000} s` : `ended with ${exitCode ?? signal}`
  throw new AshError('setup_failed', `${what} ${how}: ${end || 'it said nothing'}`)
}

/** pip and npm say first what is wrong, a resolver's conflict for one, and then what to read about it. */
function reasonIn(output: string): string {
  const first = output.search(/^(ERROR: |npm (error|ERR!) )/m)
  return first < 0
    ? output.trim().slice(-MAX_REASON_CHARS)
    : output.slice(first).trim().slice(0, MAX_FAULT_CHARS)
}

/** The time is kept inside, by whoever is in charge there; sessions that wait must not depend on that. */
async function execWithin(
  { bridge }: Sandbox,
  what: string,
  command: string,
  timeoutMs: number,
): Promise<unknown> {
  const text = `${what} did not end within ${timeoutMs / 1000} s, nor did its sandbox end it`
  const timer = setTimeout(
    () => bridge.close(new AshError('setup_failed', text)),
    timeoutMs + ANSWER_MARGIN_MS,
  )
  try {
    return await bridge.call({ cmd: 'exec', command: `exec 2>&1; ${command}`, timeoutMs })
  } finally {
    clearTimeout(timer)
  }
}

const hasPackages = (specs: string[] | undefined) => specs !== undefined && specs.length > 0

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )
