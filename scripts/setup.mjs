// npm run setup: everything Ash needs before it can start, and nothing else. Repeating it is cheap.
// --test also prepares what the tests need. Plain JavaScript: a fresh machine runs it with an older Node.
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run } from './lib/processes.mjs'
import { reportFailure, requireSuccess, step } from './lib/steps.mjs'
import { ensureSystemPackages } from './lib/system-packages.mjs'
import { findWorkspaceNode, isMain, root, toolPath, UserError, workspaceNode } from './lib/workspace.mjs'

const PNPM = 'pnpm@12.18.0'
const INSTALL_TIMEOUT_MS = 10 * 60_000
const BUILD_TIMEOUT_MS = 3 * 60_000
const STAMP = join(root, 'node_modules', '.ash-setup')

export async function setup({ forTests = false } = {}) {
  await step('system packages', () => ensureSystemPackages({ forTests }))
  await step('packages', installPackages)
  await step('build', build)
}

async function installPackages() {
  const wanted = dependencyHash()
  if (existsSync(STAMP) && readFileSync(STAMP, 'utf8') === wanted && findWorkspaceNode()) return 'up to date'
  // CI: nobody is there to confirm when pnpm has to replace a node_modules of another tool.
  const install = run('npx', ['-y', PNPM, 'install', '--frozen-lockfile'], {
    timeoutMs: INSTALL_TIMEOUT_MS,
    env: { ...process.env, CI: 'true' },
  })
  const result = await install.catch((error) => {
    throw error.code === 'ENOENT' ? new UserError('npx was not found: Ash is installed through npm.') : error
  })
  requireSuccess(result, `npx -y ${PNPM} install --frozen-lockfile`)
  writeFileSync(STAMP, wanted)
  return 'installed'
}

/** Changes whenever an install could come out differently. */
function dependencyHash() {
  const packages = readdirSync(join(root, 'packages')).map((name) => `packages/${name}/package.json`)
  const hash = createHash('sha256').update(`${process.platform} ${process.arch} ${PNPM}`)
  for (const file of ['pnpm-lock.yaml', 'pnpm-workspace.yaml', 'package.json', ...packages.sort()]) {
    const path = join(root, file)
    if (existsSync(path)) hash.update(`\0${file}\0`).update(readFileSync(path))
  }
  return hash.digest('hex')
}

/** Compiles what changed and bundles the bridge and the server. */
export async function build() {
  const node = workspaceNode()
  const compile = [toolPath('typescript', 'tsc'), '-b']
  requireSuccess(await run(node, compile, { timeoutMs: BUILD_TIMEOUT_MS }), 'tsc -b')
  for (const what of ['bridge', 'server']) {
    const bundle = [join(root, 'scripts', `bundle-${what}.mjs`)]
    requireSuccess(await run(node, bundle, { timeoutMs: BUILD_TIMEOUT_MS }), `Bundling the ${what}`)
  }
}

if (isMain(import.meta.url)) {
  setup({ forTests: process.argv.includes('--test') }).catch(reportFailure)
}
