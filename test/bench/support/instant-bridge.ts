import { join } from 'node:path'
import { bundleBridge } from '../../../scripts/bundle-bridge.mjs'

/** The bridge with the instant stand-in for the agent SDK, for ASH_BRIDGE_ENTRY. */
export async function bundleInstantBridge(folder: string): Promise<string> {
  const outfile = join(folder, 'bridge.cjs')
  const alias = { '@anthropic-ai/claude-agent-sdk': join(import.meta.dirname, 'instant-agent-sdk.ts') }
  await bundleBridge({ outfile, alias })
  return outfile
}
