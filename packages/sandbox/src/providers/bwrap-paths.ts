/** Where things lie inside a bwrap sandbox. */
export const SANDBOX_PATHS = {
  workspace: '/workspace',
  home: '/home/ash',
  agent: '/agent',
  tmp: '/tmp',
  modelSocket: '/run/ash/model.sock',
  egressSocket: '/run/ash/egress.sock',
  tunnelSocket: '/run/ash/tunnel.sock',
  nodeDir: '/opt/ash',
  node: '/opt/ash/node',
  bridge: '/opt/ash/bridge',
  /** Beside the bridge, under the name by which it asks for it. */
  compiled: '/opt/ash/compiled',
  /** The programs that run code. */
  kernels: '/opt/ash/kernels',
  /** What makes terminals, for the bridge alone. */
  pty: '/opt/ash/pty',
  claude: '/opt/ash/claude',
} as const
