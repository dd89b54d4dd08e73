// The gates of `pnpm check`, each able to fail on its own.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findImportProblems } from './import-rules.mjs'
import { isStopping, run } from './processes.mjs'
import { lastLines, requireSuccess, step } from './steps.mjs'
import { findLeaks, findLockFileAddresses, findUnlistedDocs } from './tracked-files.mjs'
import { root, toolPath, UserError, workspaceNode } from './workspace.mjs'

const TOOL_TIMEOUT_MS = 3 * 60_000
const SHOWN_LINES = 150

const GATES = [
  ['types', checkTypes],
  [
    'lint, format and import cycles',
    () => runTool('@biomejs/biome', ['biome', 'check', '--max-diagnostics=50', '.']),
  ],
  ['import direction', () => requireNone(findImportProblems())],
  ['unused files, exports and dependencies', () => runTool('knip', ['knip', '--no-progress'])],
  ['lock file without addresses', () => requireNone(findLockFileAddresses())],
  ['no machine paths or registry hosts', () => requireNone(findLeaks())],
  ['docs/INDEX.md lists every page', () => requireNone(findUnlistedDocs())],
  ['docs/openapi.json is current', checkOpenApi],
]

/** Runs every gate, also after one failed: `{ passed, failed }`. */
export async function runGates(onFailure = () => {}) {
  const counts = { passed: 0, failed: 0 }
  for (const [name, check] of GATES) {
    if (isStopping()) break
    try {
      await step(name, check)
      counts.passed++
    } catch (error) {
      counts.failed++
      console.log(error instanceof UserError ? error.message : error.stack)
      onFailure(`gate: ${name}`)
    }
  }
  return counts
}

async function checkTypes() {
  await runTool('typescript', ['tsc', '-b'])
  await runTool('typescript', ['tsc', '-p', 'tsconfig.tests.json'])
}

async function checkOpenApi() {
  const script = join('scripts', 'write-openapi.ts')
  if (!existsSync(join(root, script))) throw new UserError(`${script} is missing`)
  const path = join(root, 'docs', 'openapi.json')
  const before = existsSync(path) ? readFileSync(path, 'utf8') : undefined
  const args = ['--conditions=development', script]
  requireSuccess(await run(workspaceNode(), args, { timeoutMs: TOOL_TIMEOUT_MS }), script)
  if (before === readFileSync(path, 'utf8')) return
  // A check leaves the files as it found them.
  if (before !== undefined) writeFileSync(path, before)
  throw new UserError('docs/openapi.json differs from the routes. Run: pnpm openapi')
}

async function runTool(packageName, [command, ...args]) {
  const tool = [toolPath(packageName, command), ...args]
  const result = await run(workspaceNode(), tool, { timeoutMs: TOOL_TIMEOUT_MS })
  requireSuccess(result, [command, ...args].join(' '), SHOWN_LINES)
}

function requireNone(problems) {
  if (problems.length > 0) throw new UserError(lastLines(problems.join('\n'), SHOWN_LINES))
}
