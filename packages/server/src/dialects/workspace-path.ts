import { SANDBOX_PATHS } from '@ash-ai/sandbox'

/** A path as clients of a dialect write it, absolute or not, below the workspace; undefined for the workspace itself. */
export function inWorkspace(path: string): string | undefined {
  const { workspace } = SANDBOX_PATHS
  const isBelow = path === workspace || path.startsWith(`${workspace}/`)
  const relative = (isBelow ? path.slice(workspace.length) : path).replace(/^(\.?\/)+|\/+$/g, '')
  return relative === '' || relative === '.' ? undefined : relative
}
