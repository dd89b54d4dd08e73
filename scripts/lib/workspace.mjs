// Where things are: the checkout, its own Node, the tools it installed, the data folder.
// Runs on any Node from 18 on, before anything is installed.
import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))

const REQUIRED_NODE_MAJOR = 24

/** What a person can do something about: shown as one message, without a stack. */
export class UserError extends Error {}

export const isNewEnough = (version) => Number(version.split('.')[0]) >= REQUIRED_NODE_MAJOR

/** The Node the workspace brings (Linux), else this one if it is new enough (macOS), else undefined. */
export function findWorkspaceNode() {
  const own = join(root, 'node_modules', '.bin', 'node')
  if (existsSync(own)) return own
  return isNewEnough(process.versions.node) ? process.execPath : undefined
}

export function workspaceNode() {
  const node = findWorkspaceNode()
  if (node) return node
  const remedy =
    process.platform === 'linux'
      ? 'Run: npm run setup'
      : `Install Node ${REQUIRED_NODE_MAJOR} or newer from https://nodejs.org and try again.`
  throw new UserError(
    `Ash needs Node ${REQUIRED_NODE_MAJOR}; this is ${process.version} and the workspace has none. ${remedy}`,
  )
}

/** The file behind a tool's command, to be run with `workspaceNode()`: no shell, no PATH, no shim. */
export function toolPath(packageName, command = packageName) {
  const folder = join(root, 'node_modules', packageName)
  const manifest = join(folder, 'package.json')
  if (!existsSync(manifest)) throw new UserError(`${packageName} is not installed. Run: npm run setup`)
  const { bin } = JSON.parse(readFileSync(manifest, 'utf8'))
  return join(folder, typeof bin === 'string' ? bin : bin[command])
}

/** PATH with the workspace's own commands first, so that `node` means the workspace's Node. */
export const workspacePath = () =>
  [join(root, 'node_modules', '.bin'), process.env.PATH].filter(Boolean).join(delimiter)

/** The server's default data folder; the same rule as its config.ts. */
export function dataDir(env = process.env) {
  if (env.ASH_DATA_DIR) return resolve(env.ASH_DATA_DIR)
  if (process.getuid?.() === 0) return '/var/lib/ash'
  return join(env.XDG_DATA_HOME || join(homedir(), '.local', 'share'), 'ash')
}

/** True for the script named on the command line, false for one that is imported. */
export const isMain = (moduleUrl) =>
  process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(moduleUrl)
