import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { dirname } from 'node:path'
import type { SandboxProvider } from '../provider.ts'
import { sandboxEnv } from '../sandbox-env.ts'
import { watchProcess } from './watch-process.ts'

/**
 * No isolation: the bridge runs as the server's own user and sees the host. For development on systems without
 * namespaces; it has to be chosen by name, and every session it makes says `isolation: none`.
 */
export function createProcessProvider(): SandboxProvider {
  return {
    name: 'process',
    isolation: 'none',
    async check() {},
    async start(spec) {
      const paths = {
        workspace: spec.workspaceDir,
        home: spec.homeDir,
        agent: spec.agentDir,
        modelSocket: spec.modelSocket,
        claude: spec.runtime.claude,
        nodeDir: dirname(spec.runtime.node),
        tmp: tmpdir(),
      }
      const child = spawn(spec.runtime.node, [spec.runtime.bridge], {
        env: { ...sandboxEnv(paths, spec.id, spec.env), IS_SANDBOX: '1' },
        cwd: spec.workspaceDir,
        stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
        // A group of its own, so that what the agent started can be killed with it.
        detached: true,
      })
      const sandbox = await watchProcess(child, { bridgeFd: 3 })
      return {
        ...sandbox,
        async kill() {
          try {
            process.kill(-sandbox.pid, 'SIGKILL')
          } catch {
            // The group is gone already.
          }
          await sandbox.kill()
        },
      }
    },
  }
}
