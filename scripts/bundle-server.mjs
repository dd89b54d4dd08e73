// The server as one file, beside it the threads it starts, and sandbox-run as another: reading hundreds took more than
// half of a start.
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { build } from 'esbuild'
import { BUNDLE, BUNDLE_DIR, fingerprint, SANDBOX_RUN_BUNDLE, STAMP } from './lib/server-bundle.mjs'
import { reportFailure } from './lib/steps.mjs'
import { isMain, root } from './lib/workspace.mjs'

const SERVER = join(root, 'packages', 'server')
const COMPILED = join(SERVER, 'dist')
const SANDBOX = join(root, 'packages', 'sandbox', 'dist')
/** Started by their names, which they keep, from beside whoever starts them. */
const THREADS = [
  join(COMPILED, 'db', 'sqlite-writer.js'),
  join(SANDBOX, 'checkpoints', 'checkpoint-thread.js'),
  join(SANDBOX, 'checkpoints', 'tar-thread.js'),
  join(SANDBOX, 'artifacts', 'artifact-thread.js'),
]

/** @type {import('esbuild').Plugin} */
const installedFolders = {
  name: 'installed folders',
  // A package that has files beside its code goes on looking for them where it is installed.
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]node_modules[\\/].*\.c?js$/ }, async ({ path }) => {
      const text = await readFile(path, 'utf8')
      const folder = JSON.stringify(`/${relative(BUNDLE_DIR, dirname(path))}`)
      return { contents: text.replace(/\b__dirname\b/g, `(__dirname + ${folder})`), loader: 'js' }
    })
  },
}

/** @type {import('esbuild').Plugin} */
const onlyUsedModules = {
  name: 'only used modules',
  // Importing from a package's index brings only what is used of it: the sandbox's modules do nothing by being there.
  setup({ onResolve, resolve }) {
    onResolve({ filter: /^(@ash-ai\/|\.)/ }, async ({ path, pluginData, ...options }) => {
      if (pluginData === onlyUsedModules) return undefined
      const found = await resolve(path, { ...options, pluginData: onlyUsedModules })
      return found.path.startsWith(SANDBOX) ? { ...found, sideEffects: false } : found
    })
  },
}

/** @type {import('esbuild').Plugin} */
const lateCrypto = {
  name: 'late crypto',
  // Takes several milliseconds to load, and only staging needs it.
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^node:crypto$/ }, ({ namespace, path }) =>
      namespace === 'late' ? { path, external: true } : { path, namespace: 'late' },
    )
    onLoad({ filter: /.*/, namespace: 'late' }, () => {
      const names = ['createHash', 'randomBytes', 'randomUUID']
      const getters = names.map((name) => `get ${name}() { return require('node:crypto').${name} }`)
      return { contents: `module.exports = { ${getters.join(', ')} }`, loader: 'js' }
    })
  },
}

/** @type {import('esbuild').BuildOptions} */
const OPTIONS = {
  absWorkingDir: SERVER,
  outdir: BUNDLE_DIR,
  bundle: true,
  platform: 'node',
  target: 'node24',
  external: ['pg-native'], // Optional, and not installed.
  plugins: [installedFolders],
  // Less to read at each start. A stack still names functions and, with short lines, places.
  minifyWhitespace: true,
  lineLimit: 160,
  logLevel: 'warning',
  logOverride: { 'empty-import-meta': 'error' },
  write: false,
}

/** As CommonJS: importing Node's own modules costs more than requiring them, `node:http` alone all of its WebSockets. */
const bundleProgram = (bundle, entry, plugins = []) =>
  build({
    ...OPTIONS,
    plugins: [...OPTIONS.plugins, ...plugins],
    entryPoints: { [basename(bundle, '.cjs')]: entry },
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
    banner: { js: "const bundleUrl = require('node:url').pathToFileURL(__filename).href" },
    define: { 'import.meta.url': 'bundleUrl' },
  })

/** As modules, which `.js` means here, with the `require` that some packages in them need. */
const bundleThreads = () =>
  build({
    ...OPTIONS,
    entryPoints: THREADS,
    entryNames: '[name]',
    format: 'esm',
    banner: {
      js: "import { createRequire as makeRequire } from 'node:module';const require = makeRequire(import.meta.url);",
    },
  })

/** Whole or not at all: a server that runs from here may be about to start a thread. */
async function replaceFile(path, contents) {
  const draft = `${path}.${process.pid}`
  await writeFile(draft, contents)
  await rename(draft, path)
}

async function main() {
  const madeFrom = fingerprint()
  const results = await Promise.all([
    bundleProgram(BUNDLE, join(COMPILED, 'main.js')),
    bundleProgram(SANDBOX_RUN_BUNDLE, join(COMPILED, 'sandbox-run', 'main.js'), [
      onlyUsedModules,
      lateCrypto,
    ]),
    bundleThreads(),
  ])
  const files = results.flatMap(({ outputFiles }) => outputFiles)
  await mkdir(BUNDLE_DIR, { recursive: true })
  for (const { path, contents } of files) await replaceFile(path, contents)
  await replaceFile(STAMP, madeFrom)
}

if (isMain(import.meta.url)) main().catch(reportFailure)
