import { decide, type NetworkPolicy } from '@ash-ai/sandbox'
import { AshError, type Packages } from '@ash-ai/shared'
import type { Blueprint } from './blueprint.ts'

/** Where packages come from, as the operator set it; without, where pip and npm themselves look. */
export interface PackageIndexes {
  readonly pip?: string
  readonly npm?: string
}

/** What pip and npm talk to unless told otherwise, over TLS. */
const DEFAULT_HOSTS = { pip: ['pypi.org', 'files.pythonhosted.org'], npm: ['registry.npmjs.org'] }

/** A command for inside the sandbox, and what to do when the host lacks the program it needs. */
export interface InstallStep {
  name: string
  command: string
  /** The exit code that means the program is missing. */
  missing: { exitCode: number; remedy: string }
}

const MISSING = 97

/** What installs the packages, in order. Throws `setup_failed` where the network policy keeps them out of reach. */
export function packageSteps(
  { packages, python = 'python3', dir }: Pick<Blueprint, 'packages' | 'python' | 'dir'>,
  indexes: PackageIndexes,
  policy: NetworkPolicy,
): InstallStep[] {
  const { pip = [], npm = [] } = packages
  const assertAllowed = (kind: keyof Packages, index: string | undefined) => {
    const refused = refusedOf(kind, index, policy)
    if (refused.length > 0) throw outOfReach(kind, refused, dir !== undefined)
  }
  const steps: InstallStep[] = []
  if (pip.length > 0) {
    assertAllowed('pip', indexes.pip)
    steps.push({
      name: 'pip',
      command: pipCommand(pip, python, indexes.pip),
      missing: missing(`${python} ${python}-venv`),
    })
  }
  if (npm.length > 0) {
    assertAllowed('npm', indexes.npm)
    steps.push({ name: 'npm', command: npmCommand(npm, indexes.npm), missing: missing('nodejs npm') })
  }
  return steps
}

/** Outside /workspace, whose files could be taken for packages; an index on this very host is asked by the proxy too. */
const BEGIN = 'cd / && unset no_proxy NO_PROXY &&'

function pipCommand(specs: string[], python: string, index: string | undefined): string {
  const options = `--no-input --no-cache-dir --disable-pip-version-check ${pipIndex(index)}`
  return [
    `{ ${python} -c 'import venv, ensurepip' || exit ${MISSING}; } && ${BEGIN}`,
    `${python} -m venv "$VIRTUAL_ENV" &&`,
    `"$VIRTUAL_ENV/bin/python" -m pip install ${options} -- ${specs.map(quote).join(' ')}`,
  ].join(' ')
}

/** pip asks for an index without TLS only where it is told to trust it. The operator chose this one. */
function pipIndex(index: string | undefined): string {
  if (index === undefined) return ''
  const { protocol, host } = new URL(index)
  const trust = protocol === 'http:' ? ` --trusted-host ${quote(host)}` : ''
  return `--index-url ${quote(index)}${trust}`
}

function npmCommand(specs: string[], index: string | undefined): string {
  const registry = index === undefined ? '' : `--registry ${quote(index)}`
  return [
    `{ command -v npm || { echo 'npm: not found'; exit ${MISSING}; }; } && ${BEGIN}`,
    `npm install --global --no-audit --no-fund --no-update-notifier ${registry} -- ${specs.map(quote).join(' ')} &&`,
    // Only the installed packages are worth copying into every session.
    `rm -rf "$HOME/.npm"`,
  ].join(' ')
}

/** Specs and index URLs hold no single quote: their schemas see to that. */
const quote = (word: string) => {
  if (word.includes("'")) throw new Error('a word that cannot be quoted')
  return `'${word}'`
}

const missing = (debianPackages: string) => ({
  exitCode: MISSING,
  remedy: `The server's machine lacks what it needs. Run: apt-get install -y ${debianPackages}`,
})

function refusedOf(kind: keyof Packages, index: string | undefined, policy: NetworkPolicy): string[] {
  const entries = index === undefined ? DEFAULT_HOSTS[kind] : [new URL(index).host]
  const defaultPort = index?.startsWith('http:') ? 80 : 443
  const isRefused = (entry: string) => {
    const { hostname, port } = new URL(`http://${entry}`)
    const host = hostname.replace(/^\[|\]$/g, '')
    return !decide(policy, { host, port: Number(port) || defaultPort }).allowed
  }
  return entries.filter(isRefused)
}

function outOfReach(kind: keyof Packages, refused: string[], isAgent: boolean): AshError {
  const setting = `network: [${refused.map((entry) => `"${entry}"`).join(', ')}]`
  const [whose, where] = isAgent ? ["agent's ", " in the agent's ash.json"] : ['', '']
  return new AshError(
    'setup_failed',
    `The ${whose}network policy keeps packages.${kind} out of reach. Allow it${where}: ${setting}`,
  )
}
