// The server as one file, and sandbox-run as another: where they are, and whether they are still what was built.
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './workspace.mjs'

const PACKAGES = join(root, 'packages')
const COMPILED = join(PACKAGES, 'server', 'dist')

export const BUNDLE_DIR = join(PACKAGES, 'server', 'dist', 'bundle')
export const BUNDLE = join(BUNDLE_DIR, 'server.cjs')
export const SANDBOX_RUN_BUNDLE = join(BUNDLE_DIR, 'sandbox-run.cjs')
/** Holds the fingerprint of what the bundle was made from. */
export const STAMP = join(BUNDLE_DIR, 'made-from')

/** The bundle, unless something was compiled or installed since it was made; then what was compiled, if anything was. */
export const findServerEntry = () => findEntry(BUNDLE, join(COMPILED, 'main.js'))
export const findSandboxRunEntry = () =>
  findEntry(SANDBOX_RUN_BUNDLE, join(COMPILED, 'sandbox-run', 'main.js'))

function findEntry(bundle, compiled) {
  if (existsSync(bundle) && readIfThere(STAMP).toString() === fingerprint()) return bundle
  return existsSync(compiled) ? compiled : undefined
}

/** Of all that tsc has compiled and pnpm has installed. By content: a copy of the checkout has other times. */
export function fingerprint() {
  const hash = createHash('sha256')
  const builds = readdirSync(PACKAGES).map((name) => join('packages', name, 'dist', '.tsbuildinfo'))
  for (const file of [...builds.sort(), join('node_modules', '.pnpm', 'lock.yaml')]) {
    hash.update(`\0${file}\0`).update(readIfThere(join(root, file)))
  }
  return hash.digest('hex')
}

const readIfThere = (path) => (existsSync(path) ? readFileSync(path) : Buffer.alloc(0))
