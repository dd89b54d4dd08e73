import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

export interface Tally {
  passed: number
  failed: number
}

interface VitestReport {
  numPassedTests: number
  numFailedTests: number
  testResults: { status: string; assertionResults: unknown[] }[]
}

/** What one place reported. One that is silent or ran nothing has failed. Tests that were not asked for do not count. */
export async function readReport(place: string, folder: string): Promise<Tally> {
  const report = await readFile(join(folder, `${place}.json`), 'utf8').then(
    (text) => JSON.parse(text) as VitestReport,
    () => undefined,
  )
  const tally = report ? count(report) : { passed: 0, failed: 0 }
  if (tally.passed + tally.failed === 0) tally.failed = 1
  console.log(
    `${place}: ${report ? `${tally.passed} passed, ${tally.failed} failed` : 'ended without a report'}`,
  )
  return tally
}

function count({ numPassedTests, numFailedTests, testResults }: VitestReport): Tally {
  // A file that could not be loaded has no tests to count, and must not vanish for that.
  const broken = testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.length === 0,
  )
  return { passed: numPassedTests, failed: numFailedTests + broken.length }
}
