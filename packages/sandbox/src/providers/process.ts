import { type ChildProcess, spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { dirname } from 'node:path'
import { interpreterCommand } from '@ash-ai/shared'
import type { DiskBackend } from '../limits/disk/disk-backend.ts'
import { NOTHING_ENFORCED } from '../limits/resource-limits.ts'
import { NO_GROUP } from '../limits/rlimit.ts'
import type { ProcessTree, SandboxProvider, SandboxSpec } from '../provider.ts'
import { interpreterEnv, sandboxEnv } from '../sandbox-env.ts'
import { programsOutside } from './interpreter-programs.ts'
import { killTree } from './kill-tree.ts'
import { expectOutput, spawnWithOutput } from './output-pipes.ts'
import { watchInterpreter } from './watch-interpreter.ts'
import { watchProcess } from './watch-process.ts'

const STREAM_FD = 3

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
    expectStart: expectOutput,
    async start(spec) {
      const { modelSocket, egressSocket, tunnelSocket } = spec
      const paths = { ...hostPaths(spec), modelSocket, egressSocket, tunnelSocket }
      const env = sandboxEnv(paths, spec.id, spec.env)
      const child = spawnHere(spec, [spec.runtime.node, spec.runtime.bridge], env, ['ignore', 'pipe'])
      return withKillTree(await watchProcess(child, { bridgeFd: STREAM_FD }, NO_GROUP), child, spec)
    },
    async startInterpreter(spec, language) {
      const command = interpreterCommand(language, programsOutside(spec, language))
      const env = interpreterEnv(hostPaths(spec), spec.id, spec.env)
      const started = await spawnWithOutput((...output) => ({ child: spawnHere(spec, command, env, output) }))
      const process = await watchInterpreter(started, { channelFd: STREAM_FD }, NO_GROUP)
      return withKillTree(process, started.child, spec)
    },
  }
}

const hostPaths = (spec: SandboxSpec) => ({
  workspace: spec.workspaceDir,
  home: spec.homeDir,
  agent: spec.agentDir,
  claude: spec.runtime.claude,
  nodeDir: dirname(spec.runtime.node),
  tmp: tmpdir(),
})

function spawnHere(
  spec: SandboxSpec,
  [program = '', ...args]: string[],
  env: Record<string, string>,
  output: [stdout: 'pipe' | 'ignore' | number, stderr: 'pipe' | number],
): ChildProcess {
  return spawn(program, args, {
    env: { ...env, IS_SANDBOX: '1' },
    cwd: spec.workspaceDir,
    stdio: ['ignore', ...output, 'pipe'],
    detached: true, // A signal to the server's own group is not meant for the sandbox.
  })
}

/** Commands run in groups of their own, so the child's group alone is not the whole tree. */
function withKillTree<Tree extends ProcessTree>(tree: Tree, child: ChildProcess, { id }: SandboxSpec): Tree {
  return {
    ...tree,
    async kill() {
      const isGone = child.exitCode !== null || child.signalCode !== null
      await killTree({ pid: tree.pid, isGone }, `ASH_SANDBOX_ID=${id}`)
      await tree.kill()
    },
  }
}
