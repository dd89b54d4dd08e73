import { createProvider } from '@ash-ai/sandbox'
import { type Config, readConfig } from '../config.ts'
import { checkDataDir, checkRuntimeDir } from './data-dir-check.ts'
import {
  type Diagnosis,
  type Finding,
  fail,
  type LimitsReport,
  messageOf,
  type Verdict,
  warn,
} from './finding.ts'
import {
  checkBwrap,
  checkCoreDumps,
  checkNamespaces,
  checkPrlimit,
  checkSeccomp,
  checkSystem,
} from './isolation-checks.ts'
import { judgeDisk, judgeLimits, probeLimits } from './limits-check.ts'
import {
  checkDatabase,
  checkModel,
  checkNode,
  checkPort,
  checkProvider,
  checkRuntime,
  checkUser,
} from './server-checks.ts'

interface Check {
  id: string
  title: string
  run: (config: Config) => Promise<Verdict>
}

/** What isolation rests on; the `process` provider does without. */
const ISOLATION_CHECKS: Check[] = [
  { id: 'system', title: 'Operating system', run: () => checkSystem() },
  { id: 'bubblewrap', title: 'Bubblewrap', run: checkBwrap },
  { id: 'namespaces', title: 'User namespaces', run: checkNamespaces },
  { id: 'seccomp', title: 'System call filter', run: () => checkSeccomp() },
  { id: 'prlimit', title: 'prlimit', run: checkPrlimit },
  { id: 'core-dumps', title: 'Core dumps', run: checkCoreDumps },
]

const SERVER_CHECKS: Check[] = [
  { id: 'provider', title: 'Provider', run: checkProvider },
  { id: 'user', title: 'Server user', run: checkUser },
  { id: 'node', title: 'Node', run: () => checkNode() },
  { id: 'runtime', title: 'Sandbox programs', run: checkRuntime },
  { id: 'data-dir', title: 'Data directory', run: checkDataDir },
  { id: 'runtime-dir', title: 'Runtime directory', run: checkRuntimeDir },
  { id: 'port', title: 'Port', run: checkPort },
  { id: 'database', title: 'Database', run: checkDatabase },
  { id: 'model', title: 'Model', run: checkModel },
]

/** What the server would find if it were started with this environment, by this user. */
export async function diagnoseEnvironment(env: NodeJS.ProcessEnv): Promise<Diagnosis> {
  let config: Config
  try {
    config = readConfig(env)
  } catch (error) {
    return diagnoseMachine(messageOf(error))
  }
  return diagnose(config)
}

/** Looks at everything a server with these settings needs. Changes nothing, and starts nothing that stays. */
export async function diagnose(config: Config): Promise<Diagnosis> {
  const isContained = config.runtimeDir.startsWith(`${config.dataDir}/`)
  const serverChecks = SERVER_CHECKS.filter(({ id }) => id !== 'runtime-dir' || !isContained)
  const [isolation, limits, server] = await Promise.all([
    findAll(ISOLATION_CHECKS, config),
    findLimits(config),
    findAll(serverChecks, config),
  ])
  return summarise(config.provider, isolation, limits, server)
}

/** With settings that the server refuses, the machine can still be looked at. */
async function diagnoseMachine(faults: string): Promise<Diagnosis> {
  const config = readConfig({})
  const settings: Finding = {
    id: 'settings',
    title: 'Settings',
    ...fail(faults.replaceAll('\n', '; '), 'Correct or unset the variables named'),
  }
  const [isolation, limits] = await Promise.all([findAll(ISOLATION_CHECKS, config), findLimits(config)])
  return summarise(config.provider, isolation, limits, [settings])
}

interface Limits {
  report: LimitsReport
  findings: Finding[]
}

/** Pure. Nothing that fails may be left for sandboxes to run. */
export function summarise(
  provider: Config['provider'],
  isolationFindings: Finding[],
  limits: Limits,
  serverFindings: Finding[],
): Diagnosis {
  const canIsolate = isolationFindings.every(({ status }) => status !== 'fail')
  const isolation = provider === 'process' ? isolationFindings.map(lessen) : isolationFindings
  const findings = [...isolation, ...limits.findings, ...serverFindings]
  return {
    findings,
    summary: {
      isolation: provider === 'bwrap' && canIsolate ? 'bwrap' : 'none',
      limits: limits.report,
      canRunSandboxes: findings.every(({ status }) => status !== 'fail'),
    },
  }
}

const lessen = (finding: Finding): Finding =>
  finding.status === 'fail' ? { ...finding, status: 'warn' } : finding

async function findLimits(config: Config): Promise<Limits> {
  const head = { id: 'limits', title: 'Limits' }
  try {
    const report = await probeLimits(config)
    const disk = { id: 'disk', title: 'Disk limit', ...judgeDisk(report) }
    return { report, findings: [{ ...head, ...judgeLimits(report) }, disk] }
  } catch (error) {
    const verdict = fail(`could not be set: ${messageOf(error)}`)
    return { report: createProvider('process').limits, findings: [{ ...head, ...verdict }] }
  }
}

async function findAll(checks: Check[], config: Config): Promise<Finding[]> {
  return Promise.all(
    checks.map(async ({ id, title, run }) => ({ id, title, ...(await run(config).catch(notChecked)) })),
  )
}

const notChecked = (error: unknown) => warn(`could not be checked: ${messageOf(error)}`)
