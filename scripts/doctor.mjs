// node scripts/doctor.mjs [--json]: what isolation this machine can give, what is missing, what mends it.
// Exits with 0 when sandboxes can run, else with 1.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { exitCode, startProcess } from './lib/processes.mjs'
import { reportFailure } from './lib/steps.mjs'
import { isNewEnough, root, UserError, workspaceNode } from './lib/workspace.mjs'

const args = process.argv.slice(2)
const isJson = args.includes('--json')

async function main() {
  if (args.some((arg) => arg !== '--json')) throw new UserError('Usage: node scripts/doctor.mjs [--json]')
  if (isNewEnough(process.versions.node)) await diagnose()
  else runWithWorkspaceNode()
}

async function diagnose() {
  const { diagnoseEnvironment, formatDiagnosis } = await loadServer()
  const diagnosis = await diagnoseEnvironment(process.env)
  process.stdout.write(isJson ? `${JSON.stringify(diagnosis)}\n` : formatDiagnosis(diagnosis))
  process.exitCode = diagnosis.summary.canRunSandboxes ? 0 : 1
}

async function loadServer() {
  const entry = join(root, 'packages', 'server', 'dist', 'index.js')
  const isMissing = (error) => error.code === 'ERR_MODULE_NOT_FOUND'
  const server = existsSync(entry)
    ? await import(pathToFileURL(entry).href).catch((error) => {
        if (!isMissing(error)) throw error
      })
    : undefined
  if (server?.diagnoseEnvironment) return server
  throw new UserError('Ash is not installed and built yet. Run: npm run setup')
}

function runWithWorkspaceNode() {
  const self = fileURLToPath(import.meta.url)
  const child = startProcess(workspaceNode(), [self, ...args], { stdio: 'inherit', cwd: process.cwd() })
  child.once('error', reportFailure)
  child.once('exit', (code, signal) => process.exit(exitCode(code, signal)))
}

/** Before there is a build to ask, that it is missing is the finding. */
function reportUnbuilt(error) {
  if (!isJson || !(error instanceof UserError)) return reportFailure(error)
  const finding = { id: 'build', title: 'Ash', status: 'fail', detail: error.message, fix: 'npm run setup' }
  const limits = { backend: 'none', enforcement: {} }
  const diagnosis = { findings: [finding], summary: { isolation: 'none', limits, canRunSandboxes: false } }
  process.stdout.write(`${JSON.stringify(diagnosis)}\n`)
  process.exitCode = 1
}

main().catch(reportUnbuilt)
