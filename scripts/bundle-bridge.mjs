// All of Ash's code that a sandbox gets to see: the bridge, and beside it the agent SDK, read when it is needed.
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loadCompiled } from '@ash-ai/bridge/compiled-module'
import { build } from 'esbuild'
import { reportFailure } from './lib/steps.mjs'
import { isMain, root } from './lib/workspace.mjs'

const BRIDGE = join(root, 'packages', 'bridge')
const AGENT_SDK = '@anthropic-ai/claude-agent-sdk'

/** @type {import('esbuild').BuildOptions} */
const OPTIONS = {
  absWorkingDir: BRIDGE,
  bundle: true,
  platform: 'node',
  target: 'node24',
  // The workspace's packages from their sources, so that the bundle never holds yesterday's build.
  conditions: ['development'],
  logLevel: 'warning',
}

/**
 * The bridge as one file. `alias` replaces packages by files: tests put stand-ins where the agent SDK is.
 *
 * @param {{ outfile: string, alias?: Record<string, string>, external?: string[] }} options
 */
export async function bundleBridge({ outfile, alias = {}, external = [] }) {
  const entryPoints = [join(BRIDGE, 'src', 'main.ts')]
  await build({ ...OPTIONS, entryPoints, outfile, alias, external, format: 'esm' })
}

/** As CommonJS, of which V8 can keep what it made: that takes half the time to load. */
async function bundleAgentSdk(outfile) {
  await rm(`${outfile}.cache`, { force: true })
  await build({
    ...OPTIONS,
    stdin: { contents: `export { query } from '${AGENT_SDK}'`, resolveDir: BRIDGE },
    outfile,
    format: 'cjs',
    banner: { js: "const sdkUrl = require('node:url').pathToFileURL(__filename).href" },
    define: { 'import.meta.url': 'sdkUrl' },
    supported: { 'dynamic-import': false }, // What is run from a cache may only require.
  })
  await writeFile(`${outfile}.cache`, loadCompiled(outfile).makeCache())
}

async function main() {
  const folder = join(BRIDGE, 'dist')
  await bundleAgentSdk(join(folder, 'agent-sdk', 'sdk.cjs'))
  await bundleBridge({ outfile: join(folder, 'bridge.mjs'), external: [AGENT_SDK] })
}

if (isMain(import.meta.url)) main().catch(reportFailure)
