#!/usr/bin/env node
// Plain JavaScript for any Node from 18 on: finds a Node that can run Ash, then runs it.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const MIN_NODE_MAJOR = 24
const CONDITION = '--conditions=development'
const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const workspaceNode = here('../../../node_modules/.bin/node')
const hasNode = Number(process.versions.node.split('.')[0]) >= MIN_NODE_MAJOR
const hasSource = existsSync(here('../src/main.ts'))
const hasBuild = existsSync(here('../dist/main.js'))
// Started with the condition: the sources are wanted, as in tests.
const wantsSource = hasSource && process.execArgv.includes(CONDITION)

if (!hasNode && existsSync(workspaceNode)) {
  runAgain(workspaceNode, [])
} else if (!hasNode) {
  fail(`ash needs Node ${MIN_NODE_MAJOR} or newer; this is ${process.version}`)
} else if (wantsSource) {
  await run('../src/main.ts')
} else if (hasBuild) {
  await run('../dist/main.js')
} else if (hasSource) {
  runAgain(process.execPath, [CONDITION])
} else {
  fail('ash has not been built')
}

async function run(path) {
  const { main } = await import(path)
  process.exitCode = await main(process.argv.slice(2))
}

/** The same command in another process, with the same terminal, signals and exit code. */
function runAgain(node, options) {
  const args = [...options, fileURLToPath(import.meta.url), ...process.argv.slice(2)]
  const child = spawn(node, args, { stdio: 'inherit' })
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP']
  for (const signal of signals) process.on(signal, () => child.kill(signal))
  child.on('error', (error) => fail(`ash cannot run ${node}: ${error.message}`))
  child.on('exit', (code, signal) => {
    for (const name of signals) process.removeAllListeners(name)
    if (signal) process.kill(process.pid, signal)
    else process.exitCode = code ?? 1
  })
}

function fail(what) {
  process.stderr.write(`${what}: run "npm run setup" in ${here('../../../')} first.\n`)
  process.exitCode = 1
}
