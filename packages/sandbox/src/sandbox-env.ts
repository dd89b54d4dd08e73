/** Where things are as whatever runs inside sees them: fixed paths under isolation, host paths without. */
interface PlacePaths {
  workspace: string
  home: string
  nodeDir: string
  tmp: string
}

export interface SandboxPaths extends PlacePaths {
  /** None where there is no agent. */
  agent: string | undefined
  modelSocket: string
  egressSocket: string
  tunnelSocket?: string | undefined
  claude: string
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
    ...placeEnv(paths, sandboxId),
    ...(paths.agent !== undefined && { ASH_AGENT_DIR: paths.agent }),
    ASH_MODEL_SOCKET: paths.modelSocket,
    ASH_EGRESS_SOCKET: paths.egressSocket,
    ...(paths.tunnelSocket !== undefined && { ASH_TUNNEL_SOCKET: paths.tunnelSocket }),
    ASH_CLAUDE: paths.claude,
    ASH_BRIDGE_FD: '3',
  }
}

/**
 * The whole environment of an interpreter without a bridge. What is passed, such as where packages are, goes over
 * what is fixed, save for the name of the sandbox.
 */
export function interpreterEnv(
  paths: PlacePaths,
  sandboxId: string,
  passed: Record<string, string>,
): Record<string, string> {
  const { ASH_SANDBOX_ID, ...fixed } = placeEnv(paths, sandboxId)
  return { ...fixed, ...passed, ASH_SANDBOX_ID }
}

const placeEnv = (paths: PlacePaths, sandboxId: string) => ({
  PATH: systemPath(paths.nodeDir),
  HOME: paths.home,
  TMPDIR: paths.tmp,
  LANG: 'C.UTF-8',
  TERM: 'dumb',
  ASH_SANDBOX_ID: sandboxId,
  ASH_WORKSPACE_DIR: paths.workspace,
})
