// pnpm test:vm [place …] [file …]: the tests of limits in a VM whose kernel has control groups of version 2 alone.
// Exits with 0 when all passed, 1 when some failed, 3 when the VM cannot be had here.
import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { step } from '../../scripts/lib/steps.mjs'
import { bootVm } from './boot.ts'
import { CannotRun } from './cannot-run.ts'
import { readReport, type Tally } from './report.ts'
import { prepareVmFiles } from './vm-files.ts'

const EXIT_FAILED = 1
const EXIT_CANNOT_RUN = 3
/** Where a server is started inside; guest/run-suites knows the same names. */
const PLACES = ['root', 'delegated-root', 'delegated-user']

async function main(args: string[]): Promise<Tally> {
  const asked = PLACES.filter((place) => args.includes(place))
  const places = asked.length > 0 ? asked : PLACES
  const tests = args.filter((arg) => !PLACES.includes(arg))
  const files = await step('qemu, kernel, initramfs', prepareVmFiles)
  const dir = await mkdtemp(join(tmpdir(), 'ash-vm-'))
  // Not by `finally`: an interrupt ends this process at once.
  process.once('exit', () => rmSync(dir, { recursive: true, force: true }))
  const results = join(dir, 'results')
  await mkdir(results)
  await writeFile(join(results, 'places'), places.join('\n'))
  await writeFile(join(results, 'tests'), tests.join('\n'))
  const { isTimeout } = await bootVm(files, dir)
  if (isTimeout) console.log('The VM took too long and was switched off.')
  const tallies = await Promise.all(places.map((place) => readReport(place, results)))
  return {
    passed: tallies.reduce((sum, { passed }) => sum + passed, 0),
    failed: tallies.reduce((sum, { failed }) => sum + failed, 0),
  }
}

try {
  const { passed, failed } = await main(process.argv.slice(2))
  console.log(`\n${passed} passed, ${failed} failed`)
  process.exitCode = failed > 0 ? EXIT_FAILED : 0
} catch (error) {
  if (!(error instanceof CannotRun)) throw error
  console.error(`\nThe tests in the VM were NOT run. ${error.message}`)
  process.exitCode = EXIT_CANNOT_RUN
}
