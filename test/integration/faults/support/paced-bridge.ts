import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundleBridge } from '../../../../scripts/bundle-bridge.mjs'

/** The bridge with the stand-in in the place of the agent SDK, for `ASH_BRIDGE_ENTRY`. */
export async function buildPacedBridge(): Promise<AsyncDisposable & { path: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-paced-bridge-'))
  const path = join(folder, 'bridge.cjs')
  const standIn = fileURLToPath(import.meta.resolve('./paced-agent-sdk.ts'))
  await bundleBridge({ outfile: path, alias: { '@anthropic-ai/claude-agent-sdk': standIn } })
  return { path, [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }) }
}
