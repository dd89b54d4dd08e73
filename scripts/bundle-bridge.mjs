// All of Ash's code that a sandbox gets to see: the bridge, and beside it the agent SDK, read when it is needed.
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
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
 * The bridge as one file. `alias` replaces packages by files: tests put stand-ins where the agent SDK is.
 *
 * @param {{ outfile: string, alias?: Record<string, string>, external?: string[] }} options
 */
export async function bundleBridge({ outfile, alias = {}, external = [] }) {
  const entryPoints = [join(BRIDGE, 'src', 'main.ts')]
  await build({ ...OPTIONS, entryPoints, outfile, alias, external, format: 'esm' })
}

/** As CommonJS, of which V8 can keep what it made: that takes half the time to load. */
async function bundleAgentSdk(outfile) {
  await rm(`${outfile}.cache`, { force: true })
  await build({
    ...OPTIONS,
    stdin: { contents: `export { query } from '${AGENT_SDK}'`, resolveDir: BRIDGE },
    outfile,
    format: 'cjs',
    banner: { js: "const sdkUrl = require('node:url').pathToFileURL(__filename).href" },
    define: { 'import.meta.url': 'sdkUrl' },
    supported: { 'dynamic-import': false }, // What is run from a cache may only require.
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

async function main([option, kernels]) {
  if (option === '--kernels') return bundleKernels(kernels)
  const folder = join(BRIDGE, 'dist')
  await bundleKernels(join(folder, 'kernels'))
  await copyPty(join(folder, 'pty'))
  await bundleAgentSdk(join(folder, 'agent-sdk', 'sdk.cjs'))
  await bundleBridge({ outfile: join(folder, 'bridge.mjs'), external: [AGENT_SDK] })
}

if (isMain(import.meta.url)) main(process.argv.slice(2)).catch(reportFailure)
