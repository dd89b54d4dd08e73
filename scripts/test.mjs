// npm test: set-up, every gate, every suite; the last line sums them up. What CI runs.
// pnpm test: the unit tests alone, for someone in the middle of a change; arguments go on to vitest.
// The two share a script name, so the package manager's own user agent tells them apart.
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join, relative } from 'node:path'
import { EXTENDED_TESTS } from '../test/extended-tests.mjs'
import { runGates } from './lib/gates.mjs'
import { isStopping, run } from './lib/processes.mjs'
import { bold, reportFailure } from './lib/steps.mjs'
import { root, toolPath, workspaceNode } from './lib/workspace.mjs'
import { setup } from './setup.mjs'

const MINUTE_MS = 60_000
const TOTAL_MS = 19 * MINUTE_MS
const SUITES = [
  { name: 'unit', limitMs: 7 * MINUTE_MS },
  { name: 'integration', limitMs: 9 * MINUTE_MS },
  { name: 'isolation', limitMs: 6 * MINUTE_MS },
]
/** So many files of the extended tests run together, for as long as there is this much time for them. */
const BATCH_FILES = 3
const BATCH_MS = 4 * MINUTE_MS
const RESULTS = join(root, '.test-results')
const failures = []

async function runEverything() {
  const deadlineMs = Date.now() + TOTAL_MS
  const totals = { passed: 0, failed: 0, skipped: 0 }
  const add = (counts) => {
    for (const key of Object.keys(counts)) totals[key] += counts[key]
  }
  try {
    heading('set-up')
    await setup({ forTests: true })
    totals.passed++
    heading('gates')
    add(await runGates((failure) => failures.push(failure)))
    for (const suite of SUITES) {
      heading(`${suite.name} tests`)
      add(await runSuite(suite, deadlineMs))
    }
    heading('extended tests')
    add(await runExtended(deadlineMs))
  } catch (error) {
    reportFailure(error)
    totals.failed++
  }
  for (const failure of failures) console.log(`\nFAILED ${failure}`)
  const skipped = totals.skipped > 0 ? `, ${totals.skipped} skipped` : ''
  process.exitCode = totals.failed > 0 ? 1 : 0
  console.log(`\n${totals.passed} passed, ${totals.failed} failed${skipped}`)
}

/** The longest tests, as far as there is time; what is left out is said, and counted as skipped. */
async function runExtended(deadlineMs) {
  const totals = noTests()
  const files = [...EXTENDED_TESTS]
  while (files.length > 0 && deadlineMs - Date.now() > BATCH_MS) {
    const batch = files.splice(0, BATCH_FILES)
    const counts = await runSuite({ name: 'extended', limitMs: BATCH_MS, files: batch }, deadlineMs)
    for (const key of Object.keys(counts)) totals[key] += counts[key]
  }
  if (files.length > 0)
    console.log(`\nNOT RUN for want of time (pnpm test:extended runs them):\n  ${files.join('\n  ')}`)
  return { ...totals, skipped: totals.skipped + files.length }
}

async function runSuite({ name, limitMs, files = [] }, deadlineMs) {
  const report = join(RESULTS, `${name}.json`)
  mkdirSync(RESULTS, { recursive: true })
  rmSync(report, { force: true })
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const timeoutMs = Math.max(0, Math.min(limitMs, deadlineMs - Date.now()))
  const result = await vitest(['--project', name, ...files, ...reporters], timeoutMs)
  const tests = existsSync(report) ? JSON.parse(readFileSync(report, 'utf8')) : undefined
  const counts = tests === undefined ? noTests() : countTests(tests)
  if (tests !== undefined) failures.push(...nameFailures(tests))
  const fault = findFault(name, result, counts, timeoutMs)
  if (fault === undefined) return counts
  failures.push(fault)
  return { ...counts, failed: counts.failed + 1 }
}

/** A log is long, and may be cut: what failed is said once more at its end. */
function nameFailures({ testResults }) {
  return testResults.flatMap(({ name: file, status, message, assertionResults }) => {
    const path = relative(root, file)
    if (status === 'failed' && assertionResults.length === 0) return [`${path}: ${message}`]
    return assertionResults
      .filter((test) => test.status === 'failed')
      .map((test) => `${path} > ${test.fullName}\n    ${test.failureMessages.join('\n').slice(0, 2000)}`)
  })
}

/** What is wrong with a suite although none of its tests says so. */
function findFault(name, { code, isTimeout }, { passed, failed }, timeoutMs) {
  if (isStopping()) return `${name}: interrupted`
  if (isTimeout) return `${name}: stopped after ${Math.round(timeoutMs / 1000)} s`
  if (passed + failed === 0) return `${name}: ran no tests`
  if (code !== 0 && failed === 0) return `${name}: vitest failed (exit code ${code}) outside any test`
  return undefined
}

const noTests = () => ({ passed: 0, failed: 0, skipped: 0 })

function countTests(report) {
  // A file that could not be loaded has no tests to count, and must not vanish for that.
  const brokenFiles = report.testResults.filter(
    (file) => file.status === 'failed' && file.assertionResults.length === 0,
  )
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + brokenFiles.length,
    skipped: report.numPendingTests + report.numTodoTests,
  }
}

const vitest = (args, timeoutMs) =>
  run(workspaceNode(), [toolPath('vitest'), 'run', ...args], { timeoutMs, output: 'inherit', env: testEnv() })

/** A developer's own key or settings must not decide how the tests go. */
function testEnv() {
  const isOwn = ([name]) => /^(ASH|ANTHROPIC|CLAUDE)_/.test(name) && !name.startsWith('ASH_TEST_')
  return Object.fromEntries(Object.entries(process.env).filter((entry) => !isOwn(entry)))
}

const heading = (text) => console.log(`\n${bold(text)}`)

if (process.env.npm_config_user_agent?.startsWith('pnpm/')) {
  const { code } = await vitest(['--project', 'unit', ...process.argv.slice(2)])
  process.exitCode = code
} else {
  await runEverything()
}
