// npm run server: the server alone, in the foreground, configured by environment.
import nodeModule from 'node:module'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { exitCode, startProcess } from './lib/processes.mjs'
import { BUNDLE, findServerEntry } from './lib/server-bundle.mjs'
import { reportFailure } from './lib/steps.mjs'
import { isNewEnough, root, UserError, workspaceNode } from './lib/workspace.mjs'

const STOP_GRACE_MS = 60_000

async function main() {
  const entry = findServerEntry()
  if (entry === undefined) throw new UserError('Ash is not built yet. Run: npm run setup')
  if (!isNewEnough(process.versions.node)) return runWithWorkspaceNode()
  // Half of a start is compiling what has not changed. In a folder of our own: what is in there is run.
  nodeModule.enableCompileCache(join(root, 'node_modules', '.cache', 'ash-server'))
  // Not imported: Node would go through all of it a second time, for names that it might export.
  if (entry === BUNDLE) nodeModule.createRequire(import.meta.url)(entry)
  else await import(pathToFileURL(entry).href)
}

function runWithWorkspaceNode() {
  const self = fileURLToPath(import.meta.url)
  const options = { stdio: 'inherit', cwd: process.cwd(), isGraceful: true, graceMs: STOP_GRACE_MS }
  const child = startProcess(workspaceNode(), [self], options)
  child.once('error', reportFailure)
  child.once('exit', (code, signal) => process.exit(exitCode(code, signal)))
}

main().catch(reportFailure)
