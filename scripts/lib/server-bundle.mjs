// The server as one file: where it is, and whether it is still the server that was built.
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './workspace.mjs'

const PACKAGES = join(root, 'packages')
const COMPILED = join(PACKAGES, 'server', 'dist', 'main.js')

export const BUNDLE_DIR = join(PACKAGES, 'server', 'dist', 'bundle')
export const BUNDLE = join(BUNDLE_DIR, 'server.cjs')
/** Holds the fingerprint of what the bundle was made from. */
export const STAMP = join(BUNDLE_DIR, 'made-from')

/** The bundle, unless something was compiled or installed since it was made; then what was compiled, if anything was. */
export function findServerEntry() {
  if (existsSync(BUNDLE) && readIfThere(STAMP).toString() === fingerprint()) return BUNDLE
  return existsSync(COMPILED) ? COMPILED : undefined
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
