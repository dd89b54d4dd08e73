import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startMessagesApi } from '@ash-ai/offline-model'
import { type Owner, type SandboxProvider, stageRuntime } from '@ash-ai/sandbox'
import type { ProviderFixture } from '@ash-ai/sandbox/testing'
import { workspaceRuntime } from './runtime-source.ts'

const isRoot = process.getuid?.() === 0
// Apart from the ranges of the other suites, which run on the same machine.
let nextUid = 700_000 + (process.pid % 10_000) * 100

/** A host user that no other sandbox has, where this process may switch users at all. */
export function nextOwner(): Owner | undefined {
  if (!isRoot) return undefined
  nextUid++
  return { uid: nextUid, gid: nextUid }
}

/** A provider with the real runtime, in a folder that sandbox users can reach. */
export async function makeProviderFixture(
  provider: SandboxProvider,
  own: Pick<ProviderFixture, 'nextOwner' | 'ownVariables'>,
): Promise<ProviderFixture> {
  const dataDir = await mkdtemp(join(tmpdir(), 'ash-isolation-'))
  await chmod(dataDir, 0o711)
  const api = await startMessagesApi()
  return {
    provider,
    runtime: await stageRuntime(join(dataDir, 'runtime'), workspaceRuntime()),
    upstream: { baseUrl: api.url, apiKey: 'key' },
    dataDir,
    ...own,
    async dispose() {
      await api.close()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}
