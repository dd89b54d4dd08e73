import { expect, test } from 'vitest'
import { interpreterEnv, sandboxEnv } from './sandbox-env.ts'

const PATHS = {
  workspace: '/workspace',
  home: '/home/ash',
  agent: '/agent',
  modelSocket: '/run/ash/model.sock',
  egressSocket: '/run/ash/egress.sock',
  tunnelSocket: '/run/ash/tunnel.sock',
  claude: '/opt/ash/claude',
  nodeDir: '/opt/ash',
  tmp: '/tmp',
}
const OWN = {
  PATH: '/usr/local/bin:/usr/bin:/bin:/opt/ash',
  HOME: '/home/ash',
  TMPDIR: '/tmp',
  LANG: 'C.UTF-8',
  TERM: 'dumb',
  ASH_SANDBOX_ID: 'sandbox-1',
  ASH_AGENT_DIR: '/agent',
  ASH_WORKSPACE_DIR: '/workspace',
  ASH_MODEL_SOCKET: '/run/ash/model.sock',
  ASH_EGRESS_SOCKET: '/run/ash/egress.sock',
  ASH_TUNNEL_SOCKET: '/run/ash/tunnel.sock',
  ASH_CLAUDE: '/opt/ash/claude',
  ASH_BRIDGE_FD: '3',
}

test('a bridge has exactly the variables of the list', () => {
  expect(sandboxEnv(PATHS, 'sandbox-1')).toEqual(OWN)
})

test('a secret in the environment of the server never appears', () => {
  process.env.ASH_TEST_SECRET = 'secret-of-the-host'
  try {
    expect(JSON.stringify(sandboxEnv(PATHS, 'sandbox-1'))).not.toMatch(/secret-of-the-host|ASH_TEST_SECRET/)
  } finally {
    delete process.env.ASH_TEST_SECRET
  }
})

test('variables passed on purpose are added', () => {
  expect(sandboxEnv(PATHS, 'sandbox-1', { CLAUDE_CODE_MAX_RETRIES: '3' })).toEqual({
    ...OWN,
    CLAUDE_CODE_MAX_RETRIES: '3',
  })
})

test('a variable passed on purpose cannot replace one that the bridge relies on', () => {
  const passed = Object.fromEntries(Object.keys(OWN).map((name) => [name, 'other']))
  expect(sandboxEnv(PATHS, 'sandbox-1', passed)).toEqual(OWN)
})

test('without an agent there is no folder of one', () => {
  const { ASH_AGENT_DIR, ...others } = OWN
  expect(sandboxEnv({ ...PATHS, agent: undefined }, 'sandbox-1')).toEqual(others)
})

test('an interpreter has nothing that only a bridge needs, and knows by which mark it is found', () => {
  const passed = { PATH: '/home/ash/.venv/bin:/usr/bin', NAME: 'value', ASH_SANDBOX_ID: 'other' }
  expect(interpreterEnv(PATHS, 'sandbox-1', passed)).toEqual({
    PATH: '/home/ash/.venv/bin:/usr/bin',
    NAME: 'value',
    HOME: '/home/ash',
    TMPDIR: '/tmp',
    LANG: 'C.UTF-8',
    TERM: 'dumb',
    ASH_SANDBOX_ID: 'sandbox-1',
    ASH_WORKSPACE_DIR: '/workspace',
  })
})
