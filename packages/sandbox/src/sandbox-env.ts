/** Where things are as the bridge sees them: fixed paths under isolation, host paths without. */
export interface SandboxPaths {
  workspace: string
  home: string
  agent: string
  modelSocket: string
  egressSocket: string
  claude: string
  nodeDir: string
  tmp: string
}

/** Where programs are looked for, unless a session's own variables say otherwise. */
export const systemPath = (nodeDir: string) => `/usr/local/bin:/usr/bin:/bin:${nodeDir}`

/**
 * The whole environment of a bridge. Nothing is inherited: what is not here does not exist inside. Variables of
 * the session come later, with `configure`.
 */
export function sandboxEnv(
  paths: SandboxPaths,
  sandboxId: string,
  passed: Record<string, string> = {},
): Record<string, string> {
  return {
    ...passed,
    PATH: systemPath(paths.nodeDir),
    HOME: paths.home,
    TMPDIR: paths.tmp,
    LANG: 'C.UTF-8',
    TERM: 'dumb',
    ASH_SANDBOX_ID: sandboxId,
    ASH_AGENT_DIR: paths.agent,
    ASH_WORKSPACE_DIR: paths.workspace,
    ASH_MODEL_SOCKET: paths.modelSocket,
    ASH_EGRESS_SOCKET: paths.egressSocket,
    ASH_CLAUDE: paths.claude,
    ASH_BRIDGE_FD: '3',
  }
}
