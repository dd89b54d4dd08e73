import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { RuntimeSource } from '@ash-ai/sandbox'

/** This Node, the bundled bridge and the real `claude` of the workspace. */
export function workspaceRuntime(): RuntimeSource {
  const bridge = fileURLToPath(import.meta.resolve('@ash-ai/bridge/bundle'))
  if (!existsSync(bridge) || !existsSync(join(dirname(bridge), 'kernels'))) {
    execFileSync(process.execPath, [
      fileURLToPath(new URL('../../../scripts/bundle-bridge.mjs', import.meta.url)),
    ])
  }
  const packageFile = fileURLToPath(import.meta.resolve('@ash-ai/bridge/package.json'))
  const sdk = createRequire(createRequire(packageFile).resolve('@anthropic-ai/claude-agent-sdk'))
  const system = `@anthropic-ai/claude-agent-sdk-${process.platform}-${process.arch}`
  return { node: process.execPath, bridge, claude: sdk.resolve(`${system}/claude`) }
}
