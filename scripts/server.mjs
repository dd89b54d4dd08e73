// npm run server: the server alone, in the foreground, configured by environment.
import { existsSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { exitCode, startProcess } from './lib/processes.mjs'
import { reportFailure } from './lib/steps.mjs'
import { isNewEnough, root, UserError, workspaceNode } from './lib/workspace.mjs'

const STOP_GRACE_MS = 60_000

async function main() {
  const entry = join(root, 'packages', 'server', 'dist', 'main.js')
  if (!existsSync(entry)) throw new UserError('Ash is not built yet. Run: npm run setup')
  if (!isNewEnough(process.versions.node)) return runWithWorkspaceNode()
  // Half of a start is compiling what has not changed. In a folder of our own: what is in there is run.
  enableCompileCache(join(root, 'node_modules', '.cache', 'ash-server'))
  await import(pathToFileURL(entry).href)
}

function runWithWorkspaceNode() {
  const self = fileURLToPath(import.meta.url)
  const options = { stdio: 'inherit', cwd: process.cwd(), isGraceful: true, graceMs: STOP_GRACE_MS }
  const child = startProcess(workspaceNode(), [self], options)
  child.once('error', reportFailure)
  child.once('exit', (code, signal) => process.exit(exitCode(code, signal)))
}

main().catch(reportFailure)
