#!/usr/bin/env node
// Plain JavaScript for any Node from 18 on: finds a Node that can run Ash, then runs a handler in a sandbox. CommonJS,
// which Node starts a tenth sooner.
const { existsSync, statSync } = require('node:fs')
const nodeModule = require('node:module')
const { join } = require('node:path')

const MIN_NODE_MAJOR = 24
const CONDITION = '--conditions=development'
const here = (path) => join(__dirname, path)
const workspaceNode = here('../../../node_modules/.bin/node')
const source = here('../../server/src/sandbox-run/main.ts')
const bundle = here('../../server/dist/bundle/sandbox-run.cjs')
const hasNode = Number(process.versions.node.split('.')[0]) >= MIN_NODE_MAJOR
// Started with the condition: the sources are wanted, as in tests.
const wantsSource = existsSync(source) && process.execArgv.includes(CONDITION)

if (!hasNode && existsSync(workspaceNode)) {
  runAgain(workspaceNode, process.execArgv.includes(CONDITION) ? [CONDITION] : [])
} else if (!hasNode) {
  fail(`sandbox-run needs Node ${MIN_NODE_MAJOR} or newer; this is ${process.version}`)
} else if (wantsSource) {
  void run(import(urlOf(source)))
} else {
  void runBuilt()
}

async function runBuilt() {
  const entry = isNewest(bundle) ? bundle : await findEntry()
  if (entry === undefined) return existsSync(source) ? runAgain(process.execPath, [CONDITION]) : failUnbuilt()
  // Half of a start is compiling what has not changed. In a folder of our own: what is in there is run.
  nodeModule.enableCompileCache(here('../../../node_modules/.cache/ash-server'))
  await run(entry === bundle ? require(entry) : import(urlOf(entry)))
}

function urlOf(path) {
  return require('node:url').pathToFileURL(path).href
}

/** Made after everything it was made from: then there is no need to compare contents, which takes as long as Node does. */
function isNewest(file) {
  const timeOf = (path) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY
  const sources = ['shared', 'sandbox', 'server'].map((name) => here(`../../${name}/dist/.tsbuildinfo`))
  return existsSync(file) && sources.every((path) => timeOf(path) <= timeOf(file))
}

async function findEntry() {
  const { findSandboxRunEntry } = await import('../../../scripts/lib/server-bundle.mjs')
  return findSandboxRunEntry()
}

async function run(loading) {
  const { main } = await loading
  process.exitCode = await main(process.argv.slice(2))
}

/** The same command in another process, with the same terminal, signals and exit code. */
function runAgain(node, options) {
  const args = [...options, __filename, ...process.argv.slice(2)]
  const child = require('node:child_process').spawn(node, args, { stdio: 'inherit' })
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP']
  for (const signal of signals) process.on(signal, () => child.kill(signal))
  child.on('error', (error) => fail(`sandbox-run cannot run ${node}: ${error.message}`))
  child.on('exit', (code, signal) => {
    for (const name of signals) process.removeAllListeners(name)
    if (signal) process.kill(process.pid, signal)
    else process.exitCode = code ?? 1
  })
}

const failUnbuilt = () => fail('sandbox-run has not been built')

/** There can be no sandbox: that has a code of its own. */
function fail(what) {
  process.stderr.write(`${what}: run "npm run setup" in ${here('../../../')} first.\n`)
  process.exitCode = 5
}
