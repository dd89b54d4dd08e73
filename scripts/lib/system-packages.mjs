// What has to come from the operating system: bubblewrap and Python, and for the tests PostgreSQL's server, a browser and
// a few tools and libraries.
import { existsSync, readdirSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { run } from './processes.mjs'
import { lastLines } from './steps.mjs'
import { UserError } from './workspace.mjs'

const MIN_BWRAP = [0, 8]
const APT_TIMEOUT_MS = 5 * 60_000
const APT_ATTEMPTS = 2

/** Real programs that the tests run inside sandboxes or against proxies. */
const TEST_TOOLS = ['curl', 'openssl', 'git', 'perl', 'time'].map((name) => ({
  name,
  isPresent: async () => findCommand(name) !== undefined,
}))

/** What packages of agents are installed with. Sandboxes see the host's /usr and nothing else of it. */
const PACKAGE_TOOLS = [
  { name: 'python3-venv', isPresent: hasVenv },
  {
    name: 'npm',
    isPresent: async () => ['/usr/bin/npm', '/usr/local/bin/npm'].some((path) => existsSync(path)),
  },
]

/** Debian's libraries that people use to make a chart: the tests run them inside sandboxes. */
const PYTHON_LIBRARIES = ['numpy', 'pandas', 'matplotlib'].map((library) => ({
  name: `python3-${library}`,
  isPresent: async () => existsSync(join('/usr/lib/python3/dist-packages', library)),
}))

/** What the tests look at pages with. */
export const findBrowser = () =>
  ['/usr/bin/chromium', '/usr/bin/google-chrome'].find((path) => existsSync(path))
const BROWSER = { name: 'chromium', isPresent: async () => findBrowser() !== undefined }

const FOR_TESTS = [
  { name: 'postgresql', isPresent: hasPostgres },
  BROWSER,
  ...TEST_TOOLS,
  ...PACKAGE_TOOLS,
  ...PYTHON_LIBRARIES,
]

/** Makes sure they are there, or throws saying what to run. Returns a word on what was found. */
export async function ensureSystemPackages({ forTests }) {
  if (process.platform === 'darwin') {
    return 'macOS: no isolation here, only the `process` provider works; for development'
  }
  if (process.platform !== 'linux')
    throw new UserError(`Ash runs on Linux and macOS, not on ${process.platform}.`)
  const needed = [
    { name: 'bubblewrap', isPresent: async () => (await bwrapVersion()) !== undefined },
    // The host's own, which sandboxes see: one of a version manager in somebody's home they do not.
    { name: 'python3', isPresent: async () => existsSync('/usr/bin/python3') },
    ...(forTests ? FOR_TESTS : []),
  ]
  await ensurePackages(needed)
  return describeBwrap(await bwrapVersion())
}

/** Installs those of Debian's packages that are not there, as root, or throws saying what to run. */
export async function ensurePackages(needed) {
  const missing = await selectMissing(needed)
  if (missing.length > 0) await install(missing)
}

async function selectMissing(needed) {
  const present = await Promise.all(needed.map((item) => item.isPresent()))
  return needed.filter((_, index) => !present[index])
}

async function install(missing) {
  const names = missing.map((item) => item.name)
  const command = `sudo apt-get update && sudo apt-get install -y ${names.join(' ')}`
  if (findCommand('apt-get') === undefined) {
    throw new UserError(
      `Missing: ${names.join(', ')}. Install with your system's package manager, then try again.`,
    )
  }
  if (process.getuid() !== 0) {
    throw new UserError(`Missing: ${names.join(', ')}. Not running as root, so please run:\n\n  ${command}\n`)
  }
  let output = ''
  for (let attempt = 1; attempt <= APT_ATTEMPTS; attempt++) {
    // A failed update may concern some other source than the one needed: the install decides.
    const update = await apt(['update'])
    const installed = await apt(['install', '-y', '--no-install-recommends', ...names])
    if (installed.code === 0 && (await selectMissing(missing)).length === 0) return
    output = `${update.output}\n${installed.output}`
  }
  throw new UserError(`apt-get could not install ${names.join(', ')}:\n${lastLines(output, 30)}`)
}

const apt = (args) =>
  run('apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=120', ...args], {
    timeoutMs: APT_TIMEOUT_MS,
    // The user's own package manager, with the proxies and mirrors of the user.
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  })

async function bwrapVersion() {
  if (findCommand('bwrap') === undefined) return undefined
  const { output } = await run('bwrap', ['--version'], { timeoutMs: 10_000 })
  return /\d+(\.\d+)+/.exec(output)?.[0]
}

function describeBwrap(version) {
  const [major, minor] = version.split('.').map(Number)
  if (major > MIN_BWRAP[0] || (major === MIN_BWRAP[0] && minor >= MIN_BWRAP[1]))
    return `bubblewrap ${version}`
  throw new UserError(
    `bubblewrap ${version} is too old, Ash needs ${MIN_BWRAP.join('.')} or newer (Debian 12, Ubuntu 24.04).`,
  )
}

async function hasVenv() {
  const python = ['/usr/local/bin/python3', '/usr/bin/python3'].find((path) => existsSync(path))
  if (python === undefined) return false
  return (await run(python, ['-c', 'import venv, ensurepip'], { timeoutMs: 10_000 })).code === 0
}

/** Debian keeps the server's programs out of PATH. */
async function hasPostgres() {
  const folders = []
  if (findCommand('pg_config') !== undefined) {
    folders.push((await run('pg_config', ['--bindir'], { timeoutMs: 10_000 })).output.trim())
  }
  const debian = '/usr/lib/postgresql'
  if (existsSync(debian))
    for (const version of readdirSync(debian)) folders.push(join(debian, version, 'bin'))
  return folders.some((folder) => existsSync(join(folder, 'initdb')) && existsSync(join(folder, 'postgres')))
}

export const findCommand = (name) =>
  (process.env.PATH ?? '')
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path))
