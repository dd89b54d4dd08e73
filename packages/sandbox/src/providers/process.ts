import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { dirname } from 'node:path'
import type { DiskBackend } from '../limits/disk/disk-backend.ts'
import { NOTHING_ENFORCED } from '../limits/resource-limits.ts'
import { NO_GROUP } from '../limits/rlimit.ts'
import type { SandboxProvider } from '../provider.ts'
import { sandboxEnv } from '../sandbox-env.ts'
import { killTree } from './kill-tree.ts'
import { watchProcess } from './watch-process.ts'

/**
 * No isolation: the bridge runs as the server's own user and sees the host. For development on systems without
 * namespaces; it has to be chosen by name, and every session it makes says `isolation: none`.
 */
export function createProcessProvider(diskMb: DiskBackend['enforcement']): SandboxProvider {
  return {
    name: 'process',
    isolation: 'none',
    limits: { backend: 'none', enforcement: { ...NOTHING_ENFORCED, diskMb, outputMbPerSecond: 'hard' } },
    async check() {},
    async start(spec) {
      const paths = {
        workspace: spec.workspaceDir,
        home: spec.homeDir,
        agent: spec.agentDir,
        modelSocket: spec.modelSocket,
        egressSocket: spec.egressSocket,
        claude: spec.runtime.claude,
        nodeDir: dirname(spec.runtime.node),
        tmp: tmpdir(),
      }
      const env: Record<string, string> = { ...sandboxEnv(paths, spec.id, spec.env), IS_SANDBOX: '1' }
      const child = spawn(spec.runtime.node, [spec.runtime.bridge], {
        env,
        cwd: spec.workspaceDir,
        stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
        detached: true, // A signal to the server's own group is not meant for the sandbox.
      })
      const sandbox = await watchProcess(child, { bridgeFd: 3 }, NO_GROUP)
      return {
        ...sandbox,
        async kill() {
          const isGone = child.exitCode !== null || child.signalCode !== null
          // Commands run in groups of their own, so the bridge's group alone is not the whole tree.
          await killTree({ pid: sandbox.pid, isGone }, `ASH_SANDBOX_ID=${spec.id}`)
          await sandbox.kill()
        },
      }
    },
  }
}
