// All of Ash's code that a sandbox gets to see: the bridge, and beside it the agent SDK, read when it is needed.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { copyFile, mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { loadCompiled } from '@ash-ai/bridge/compiled-module'
import { build } from 'esbuild'
import { reportFailure } from './lib/steps.mjs'
import { isMain, root } from './lib/workspace.mjs'

const BRIDGE = join(root, 'packages', 'bridge')
const AGENT_SDK = '@anthropic-ai/claude-agent-sdk'

/** @type {import('esbuild').BuildOptions} */
const OPTIONS = {
  absWorkingDir: BRIDGE,
  bundle: true,
  platform: 'node',
  target: 'node24',
  // The workspace's packages from their sources, so that the bundle never holds yesterday's build.
  conditions: ['development'],
  logLevel: 'warning',
}

/**
 * As CommonJS, which Node starts in less time, and of which V8 can keep what it made.
 *
 * @type {import('esbuild').BuildOptions}
 */
const COMMON_JS = {
  ...OPTIONS,
  format: 'cjs',
  define: { 'import.meta.dirname': '__dirname', 'import.meta.filename': '__filename' },
  supported: { 'dynamic-import': false }, // What is run from a cache may only require.
}

/**
 * The bridge as one file. `alias` replaces packages by files: tests put stand-ins where the agent SDK is.
 *
 * @param {{ outfile: string, alias: Record<string, string> }} options
 */
export async function bundleBridge({ outfile, alias }) {
  await build({ ...COMMON_JS, entryPoints: [join(BRIDGE, 'src', 'main.ts')], outfile, alias })
}

/** The bridge that is shipped: a small program that runs the large one from its cache. */
async function bundleCompiled(folder) {
  const compiled = join(folder, 'compiled')
  await rm(compiled, { recursive: true, force: true })
  const entry = (name) => [join(BRIDGE, 'src', name)]
  const program = join(compiled, 'bridge.cjs')
  const external = [AGENT_SDK]
  await build({ ...COMMON_JS, entryPoints: entry('run-bridge.ts'), outfile: program, external })
  await build({ ...COMMON_JS, entryPoints: entry('launch.ts'), outfile: join(folder, 'bridge.cjs') })
  await bundleAgentSdk(join(compiled, 'sdk.cjs'))
  await rehearse(program)
}

/** V8 keeps only what has been called: a bridge that was set up once, and ended. */
async function rehearse(program) {
  const names = ['ASH_WORKSPACE_DIR', 'ASH_MODEL_SOCKET', 'ASH_EGRESS_SOCKET', 'ASH_CLAUDE', 'HOME']
  const env = { ASH_BRIDGE_FD: '3', ...Object.fromEntries(names.map((name) => [name, '/nonexistent'])) }
  const child = spawn(process.execPath, [import.meta.filename, '--rehearse', program], {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  })
  const session = { sessionId: 'rehearsal', modelToken: 'none', env: {} }
  const commands = [
    { cmd: 'configure', id: '1', session },
    { cmd: 'ping', id: '2' },
    { cmd: 'shutdown', id: '3' },
  ]
  child.stdio[3].on('error', () => {}) // Its exit says more.
  child.stdio[3].write(commands.map((command) => `${JSON.stringify(command)}\n`).join(''))
  child.stdio[3].resume()
  const [code] = await once(child, 'exit')
  if (code !== 0) throw new Error(`the bridge ended its rehearsal with ${code}`)
}

async function perform(program) {
  const compiled = loadCompiled(program)
  process.on('exit', () => writeFileSync(`${program}.cache`, compiled.makeCache()))
  await compiled.exports.runBridge('/nonexistent')
}

async function bundleAgentSdk(outfile) {
  await build({
    ...COMMON_JS,
    stdin: { contents: `export { query } from '${AGENT_SDK}'`, resolveDir: BRIDGE },
    outfile,
    banner: { js: "const sdkUrl = require('node:url').pathToFileURL(__filename).href" },
    define: { ...COMMON_JS.define, 'import.meta.url': 'sdkUrl' },
  })
  await writeFile(`${outfile}.cache`, loadCompiled(outfile).makeCache())
}

/** User code may replace what is global: the interpreter it shares a realm with takes its own first. */
const OWN_GLOBALS = `const {Array,Atomics,Error,Int32Array,JSON,Map,Math,Number,Object,Promise,RangeError,RegExp,Set,
Reflect,SharedArrayBuffer,String,Symbol,SyntaxError,TypeError,URL,Uint8Array}=globalThis`

const COMPILE_PYTHON = `import pathlib, py_compile, sys
for path in pathlib.Path(sys.argv[1]).glob('python-*.py'):
    name = path.stem.removeprefix('python-')
    compiled = path.with_suffix(f'.{sys.implementation.cache_tag}.pyc')
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), str(compiled), f'<ash>/{name}.py', True, invalidation_mode=mode)`

/** For the Python of this machine, which sandboxes see; without it, or with another, they compile for themselves. */
async function compilePython(folder) {
  const python = '/usr/bin/python3'
  if (existsSync(python)) await promisify(execFile)(python, ['-c', COMPILE_PYTHON, folder])
}

const SAMPLE_CELL = `import fs, { readFile as read } from 'node:fs'
const { a, ...rest } = await load(\`x\${1}\`); let [b = /r/u] = [0x1, 1.5, 'text', !null, -(2 ** 3)]
class Shape extends Base { #side = 1; static make() { return new Shape() } get area() { return this.#side ?? 0 } }
async function* all(list, ...more) { for (const item of list) yield { item, [a]: more, ...rest } }
for (let i = 0; i < 3; i++) { if (i === 1) continue; else switch (a?.b) { default: break } }
try { throw new Error('x') } catch { while (false) void 0 } finally { delete rest.c }
export const handler = async (event, { time } = {}) => (event.a ? time : (b += 1, typeof b))
handler({})`

/** The programs that run code: one file for JavaScript, one and its parts for Python. `--kernels <folder>` makes only them. */
async function bundleKernels(folder) {
  const source = join(BRIDGE, 'src', 'kernels')
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const parts = (await readdir(source)).filter((name) => name.endsWith('.py'))
  await Promise.all(parts.map((name) => copyFile(join(source, name), join(folder, name))))
  await compilePython(folder)
  const options = { ...OPTIONS, banner: { js: OWN_GLOBALS }, minifyWhitespace: true, minifySyntax: true }
  await build({
    ...options,
    entryPoints: [join(source, 'javascript-kernel.ts')],
    outfile: join(folder, 'javascript-kernel.mjs'),
    format: 'esm',
  })
  const transform = join(folder, 'cell-transform.cjs')
  await build({
    ...options,
    entryPoints: [join(source, 'cell-transform.ts')],
    outfile: transform,
    format: 'cjs',
  })
  const compiled = loadCompiled(transform)
  compiled.exports.transformCell(SAMPLE_CELL) // V8 keeps only what has been called.
  await writeFile(`${transform}.cache`, compiled.makeCache())
}

/** The native module behind terminals, where there is one for this machine. */
async function copyPty(folder) {
  await rm(folder, { recursive: true, force: true })
  const name = `@lydell/node-pty-${process.platform}-${process.arch}`
  const from = join(BRIDGE, 'node_modules', name, 'pty.node')
  if (!existsSync(from)) return
  await mkdir(folder, { recursive: true })
  await copyFile(from, join(folder, 'pty.node'))
}

async function main([option, path]) {
  if (option === '--kernels') return bundleKernels(path)
  if (option === '--rehearse') return perform(path)
  const folder = join(BRIDGE, 'dist')
  await bundleKernels(join(folder, 'kernels'))
  await copyPty(join(folder, 'pty'))
  await bundleCompiled(folder)
}

if (isMain(import.meta.url)) main(process.argv.slice(2)).catch(reportFailure)
