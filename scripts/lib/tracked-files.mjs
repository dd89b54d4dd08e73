// The files that are the project, and what must not be in them.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './workspace.mjs'

// As in .gitignore; walked instead of asking git, so that an unpacked archive can be checked too.
const IGNORED = new Set(['.git', 'node_modules', 'dist', 'data', '.test-results', 'coverage'])

/** Paths relative to the root, with `/`, sorted. */
export function listFiles(folder = '') {
  return readdirSync(join(root, folder), { withFileTypes: true })
    .filter((entry) => !IGNORED.has(entry.name))
    .flatMap((entry) => {
      const path = folder ? `${folder}/${entry.name}` : entry.name
      if (entry.isDirectory()) return listFiles(path)
      return entry.isFile() ? [path] : []
    })
    .sort()
}

// Names that examples and sandboxes use; any other home or build folder belongs to somebody's machine.
const EXAMPLE_USERS = 'user|you|me|ash|agent|sandbox|ada|alice|bob|someone|example'
const LEAKS = [
  [
    new RegExp(`(?<![\\w.])/(?:home|Users)/(?!(?:${EXAMPLE_USERS})\\b)[a-z][\\w.-]*/`),
    'a path of one machine',
  ],
  [/(?<![\w.@-])\/(?:work|builds|runner)\/[a-z]/, 'a path of one machine'],
  [/https?:\/\/[^\s/'"`]*(?:registry|artifactory|nexus|verdaccio|mirror)[^\s/'"`]*/i, 'a registry host'],
  [/\/\/[^\s]*:_auth(?:Token)?\s*=|^\s*registry\s*=/m, 'registry settings'],
]

/** Machine paths and registry hosts, one line each: file, line, what. */
export function findLeaks() {
  return listFiles().flatMap((file) => {
    const lines = readFileSync(join(root, file), 'utf8').split('\n')
    return lines.flatMap((line, index) =>
      LEAKS.flatMap(([pattern, what]) => {
        const match = pattern.exec(line)
        return match ? [`${file}:${index + 1}: ${what}: ${match[0]}`] : []
      }),
    )
  })
}

/** The lock file names versions and checksums; an address in it would tie every install to one registry. */
export function findLockFileAddresses() {
  const lines = readFileSync(join(root, 'pnpm-lock.yaml'), 'utf8').split('\n')
  return lines.flatMap((line, index) => {
    const match = /\w+:\/\/\S+|\btarball:.*|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])|\blocalhost\b/.exec(
      line,
    )
    return match ? [`pnpm-lock.yaml:${index + 1}: ${match[0]}`] : []
  })
}

/** Pages nobody can find: files in docs/ that docs/INDEX.md does not link. */
export function findUnlistedDocs() {
  const index = readFileSync(join(root, 'docs', 'INDEX.md'), 'utf8')
  return listFiles('docs')
    .map((file) => file.slice('docs/'.length))
    .filter((file) => file !== 'INDEX.md' && !index.includes(`](${file})`) && !index.includes(`](./${file})`))
    .map((file) => `docs/INDEX.md does not link ${file}`)
}
