import { join } from 'node:path'
import { type SandboxPaths, systemPath } from './sandbox-env.ts'

/** Below the home, so that they are part of what is copied. */
const VENV = '.venv'
const NPM_PREFIX = '.local'

/** Variables by which whatever runs in a sandbox finds the packages of its agent; none where it has none. */
export function packageEnv(
  { home, nodeDir }: Pick<SandboxPaths, 'home' | 'nodeDir'>,
  has: { pip: boolean; npm: boolean },
): Record<string, string> {
  if (!has.pip && !has.npm) return {}
  const [venv, prefix] = [join(home, VENV), join(home, NPM_PREFIX)]
  const folders = [...(has.pip ? [join(venv, 'bin')] : []), ...(has.npm ? [join(prefix, 'bin')] : [])]
  return {
    PATH: [...folders, systemPath(nodeDir)].join(':'),
    ...(has.pip && { VIRTUAL_ENV: venv }),
    ...(has.npm && { NPM_CONFIG_PREFIX: prefix, NODE_PATH: join(prefix, 'lib', 'node_modules') }),
  }
}
