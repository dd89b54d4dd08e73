/** Where things lie inside a bwrap sandbox. */
export const SANDBOX_PATHS = {
  workspace: '/workspace',
  home: '/home/ash',
  agent: '/agent',
  tmp: '/tmp',
  modelSocket: '/run/ash/model.sock',
  egressSocket: '/run/ash/egress.sock',
  nodeDir: '/opt/ash',
  node: '/opt/ash/node',
  bridge: '/opt/ash/bridge.mjs',
  claude: '/opt/ash/claude',
} as const
