import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { RuntimeSource } from '@ash-ai/sandbox'

/** Where the installed packages keep what a sandbox needs: this Node, the bundled bridge, the `claude` binary. */
export function locateRuntime(bridgeEntry?: string): RuntimeSource {
  const { resolve } = createRequire(import.meta.url)
  const sdk = createRequire(resolve('@ash-ai/bridge/package.json')).resolve('@anthropic-ai/claude-agent-sdk')
  const bundle = resolve('@ash-ai/bridge/bundle')
  return {
    node: process.execPath,
    bridge: bridgeEntry ?? bundle,
    // Also for another bridge.
    kernels: join(dirname(bundle), 'kernels'),
    claude: locateClaude(createRequire(sdk)),
  }
}

/** The SDK brings one native binary, for this system and C library. */
function locateClaude(require: NodeJS.Require): string {
  const system = `@anthropic-ai/claude-agent-sdk-${process.platform}-${process.arch}`
  for (const name of [`${system}/claude`, `${system}-musl/claude`]) {
    try {
      return require.resolve(name)
    } catch {
      // Not installed: the other C library, or none.
    }
  }
  throw new Error(`The claude binary of ${system} is not installed. Run "npm run setup".`)
}
