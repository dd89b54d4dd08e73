// The bridge as one file, which is all of Ash's code that a sandbox gets to see.
import { join } from 'node:path'
import { build } from 'esbuild'
import { reportFailure } from './lib/steps.mjs'
import { isMain, root } from './lib/workspace.mjs'

const BRIDGE = join(root, 'packages', 'bridge')

// CommonJS inside the bundle still calls require for Node's own modules, which an ES module does not have.
const REQUIRE_BANNER = `import { createRequire as ashCreateRequire } from 'node:module'
const require = ashCreateRequire(import.meta.url)`

/** `alias` replaces packages by files: a benchmark puts an instant stand-in where the agent SDK is. */
export async function bundleBridge({
  entry = join(BRIDGE, 'src', 'main.ts'),
  outfile = join(BRIDGE, 'dist', 'bridge.mjs'),
  alias = {},
} = {}) {
  await build({
    entryPoints: [entry],
    outfile,
    alias,
    absWorkingDir: BRIDGE,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    // The workspace's packages from their sources, so that the bundle never holds yesterday's build.
    conditions: ['development'],
    banner: { js: REQUIRE_BANNER },
    logLevel: 'warning',
  })
}

if (isMain(import.meta.url)) bundleBridge().catch(reportFailure)
