import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runCli } from '../testing/run-cli.ts'

/** Stands in for the script: says what it was given, or fails as it is told. */
const SCRIPT = `
if (process.env.ASH_TEST === 'crash') { console.error('Error: broken\\x1b[31m'); process.exit(7) }
const names = Object.keys(process.env).sort()
if (process.argv.includes('--json')) console.log(JSON.stringify({ names, summary: {} }))
else console.log('✓ System: Linux\\n✗ Port: taken \\x1b[31m\\n    fix: ASH_PORT=4200')
process.exitCode = process.env.ASH_TEST === 'fail' ? 1 : 0
`

const CLI = fileURLToPath(new URL('../..', import.meta.url))
const root = mkdtempSync(join(tmpdir(), 'ash-workspace-'))
const bin = join(root, 'packages/cli/bin/ash.mjs')
const ash = (args: string[], env: Record<string, string> = {}) =>
  runCli(['doctor', ...args], { bin, env: { ...env, SECRET: 'not for the script' } })

/** A workspace with this CLI and that script. */
beforeAll(() => {
  mkdirSync(join(root, 'scripts'))
  writeFileSync(join(root, 'scripts/doctor.mjs'), SCRIPT)
  for (const part of ['bin', 'src', 'package.json']) {
    cpSync(join(CLI, part), join(root, 'packages/cli', part), { recursive: true })
  }
  symlinkSync(join(CLI, 'node_modules'), join(root, 'packages/cli/node_modules'))
})
afterAll(() => rmSync(root, { recursive: true }))

test('the report is shown, and nothing in it can act on a terminal', async () => {
  const { code, stdout } = await ash([])
  expect(code).toBe(0)
  expect(stdout).toBe('✓ System: Linux\n✗ Port: taken \\x1b[31m\n    fix: ASH_PORT=4200\n')
})

test('a machine that cannot run sandboxes is exit code 1, with the report', async () => {
  expect(await ash([], { ASH_TEST: 'fail' })).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('fix: ASH_PORT'),
  })
})

test('--json hands the document on; the script gets what a server would', async () => {
  const { code, stdout } = await ash(['--json'], { ASH_TEST: 'fail' })
  expect(code).toBe(1)
  expect(JSON.parse(stdout)).toEqual({ names: ['ASH_DATA_DIR', 'ASH_TEST', 'PATH'], summary: {} })
})

test('a script that cannot run is a failure in two lines', async () => {
  const { code, stdout, stderr } = await ash([], { ASH_TEST: 'crash' })
  expect([code, stdout]).toEqual([1, ''])
  expect(stderr).toBe(
    'error: Cannot look at this machine: Error: broken\\x1b[31m\n  next: In the checkout run: npm run setup\n',
  )
})
