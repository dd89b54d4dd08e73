// Which package may import which; the folder tree is the architecture only as long as this holds.
// Cycles inside a package are Biome's to find (noImportCycles).
import { readFileSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { listFiles } from './tracked-files.mjs'
import { root } from './workspace.mjs'

const MAY_IMPORT = {
  shared: [],
  'offline-model': [],
  sandbox: ['shared'],
  bridge: ['shared'],
  server: ['shared', 'sandbox', 'offline-model'],
  sdk: ['shared'],
  cli: ['shared', 'sdk'],
}
// Any test may talk to the fake model API.
const TESTS_MAY_IMPORT = ['offline-model']

const SCOPE = '@ash-ai/'
const IMPORT =
  /\b(?:import|export)\b[^'"`;=()]*?\bfrom\s*['"]([^'"]+)['"]|\bimport\s*\(\s*['"]([^'"]+)['"]|^\s*import\s*['"]([^'"]+)['"]/gm

/** Every broken rule as one line: file, import, why. */
export function findImportProblems() {
  return listFiles()
    .filter((file) => /\.(ts|tsx|mts|mjs|js)$/.test(file))
    .flatMap((file) => {
      const text = readFileSync(join(root, file), 'utf8')
      const found = [...text.matchAll(IMPORT)].map((match) => match[1] ?? match[2] ?? match[3])
      return found.flatMap((specifier) => {
        const problem = specifier.startsWith('.')
          ? findRelativeProblem(file, specifier)
          : findPackageProblem(file, specifier)
        return problem ? [`${file}: '${specifier}' ${problem}`] : []
      })
    })
}

function findPackageProblem(file, specifier) {
  if (!specifier.startsWith(SCOPE)) return undefined
  const [name, ...subpath] = specifier.slice(SCOPE.length).split('/')
  if (subpath.length > 0 && !isExported(name, subpath.join('/'))) return `reaches past the index of ${name}`
  const own = packageOf(file)
  if (own === undefined || own === name) return undefined
  if (!(own in MAY_IMPORT)) return `comes from ${own}, which scripts/lib/import-rules.mjs does not know`
  const allowed = file.endsWith('.test.ts') ? [...MAY_IMPORT[own], ...TESTS_MAY_IMPORT] : MAY_IMPORT[own]
  return allowed.includes(name) ? undefined : `is against the import direction: ${own} may not use ${name}`
}

function findRelativeProblem(file, specifier) {
  const target = relative(root, resolve(root, dirname(file), specifier))
    .split(sep)
    .join('/')
  const other = packageOf(target)
  if (other !== undefined && other !== packageOf(file) && target.startsWith(`packages/${other}/src/`)) {
    return `reaches into ${other}; use ${SCOPE}${other}`
  }
  const [from, to] = [serverFolder(file), serverFolder(target)]
  // A test may put an app together from the routes it needs.
  const isRoutes = /-routes(\.ts)?$/.test(target) && !file.endsWith('.test.ts')
  if (from && to && from !== to && isRoutes) return `uses a neighbour's routes; use its queries or lifecycle`
  return undefined
}

function isExported(name, subpath) {
  const manifest = JSON.parse(readFileSync(join(root, 'packages', name, 'package.json'), 'utf8'))
  return `./${subpath}` in (manifest.exports ?? {})
}

const packageOf = (file) => /^packages\/([^/]+)\//.exec(file)?.[1]
const serverFolder = (file) => /^packages\/server\/src\/([^/]+)\//.exec(file)?.[1]
