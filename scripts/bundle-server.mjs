// The server as one file, beside it the threads it starts: reading hundreds took more than half of a start.
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { build } from 'esbuild'
import { BUNDLE, BUNDLE_DIR, fingerprint, STAMP } from './lib/server-bundle.mjs'
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
const bundleMain = () =>
  build({
    ...OPTIONS,
    entryPoints: { [basename(BUNDLE, '.cjs')]: join(COMPILED, 'main.js') },
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
  const results = await Promise.all([bundleMain(), bundleThreads()])
  const files = results.flatMap(({ outputFiles }) => outputFiles)
  await mkdir(BUNDLE_DIR, { recursive: true })
  for (const { path, contents } of files) await replaceFile(path, contents)
  await replaceFile(STAMP, madeFrom)
}

if (isMain(import.meta.url)) main().catch(reportFailure)
