import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runCli } from '../testing/run-cli.ts'

/** Stands in for the script: says what it was given, and has faults or fails as the folder says. */
const SCRIPT = `
const [dir] = process.argv.slice(2)
if (dir === 'crash') { console.error('Error: broken\\x1b[31m'); process.exit(7) }
const entries = [{ kind: 'agents', name: 'a', description: Object.keys(process.env).sort().join(' '), file: 'agents/a.yaml' }]
const faults = dir === 'bad' ? [{ text: 'agents/a.yaml:1:2 name: is missing \\x1b[31m' }] : []
console.log(JSON.stringify({ dir, entries, faults }))
process.exitCode = faults.length
`

const CLI = fileURLToPath(new URL('../..', import.meta.url))
const root = mkdtempSync(join(tmpdir(), 'ash-workspace-'))
const bin = join(root, 'packages/cli/bin/ash.mjs')
const ash = (args: string[], env: Record<string, string> = {}) =>
  runCli(['registry', ...args], { bin, env: { ...env, SECRET: 'not for the script' } })

/** A workspace with this CLI and that script. */
beforeAll(() => {
  mkdirSync(join(root, 'scripts'))
  writeFileSync(join(root, 'scripts/registry.mjs'), SCRIPT)
  for (const part of ['bin', 'src', 'package.json']) {
    cpSync(join(CLI, part), join(root, 'packages/cli', part), { recursive: true })
  }
  symlinkSync(join(CLI, 'node_modules'), join(root, 'packages/cli/node_modules'))
})
afterAll(() => rmSync(root, { recursive: true }))

test('a registry without faults is said to have none', async () => {
  expect(await ash(['validate'])).toMatchObject({ code: 0, stdout: '✓ registry: 1 item, no faults\n' })
  expect(await ash(['validate'], { ASH_REGISTRY_DIR: '/etc/ash' })).toMatchObject({
    stdout: '✓ /etc/ash: 1 item, no faults\n',
  })
})

test('faults are listed, cannot act on a terminal, and are exit code 1', async () => {
  expect(await ash(['validate', 'bad'])).toMatchObject({
    code: 1,
    stdout: 'agents/a.yaml:1:2 name: is missing \\x1b[31m\n1 fault in bad\n',
  })
  const { code, stdout } = await ash(['validate', 'bad', '--json'])
  expect([code, JSON.parse(stdout).faults.length]).toEqual([1, 1])
})

test('list shows what there is; the script gets what a server would', async () => {
  const { code, stdout } = await ash(['list', '--json'])
  expect([code, JSON.parse(stdout).entries[0].description]).toEqual([0, 'ASH_DATA_DIR PATH'])
  expect((await ash(['list', 'bad'])).stderr).toBe('1 fault. See them with: ash registry validate bad\n')
})

test('a check that cannot run is a failure in two lines', async () => {
  const { code, stdout, stderr } = await ash(['validate', 'crash'])
  expect([code, stdout]).toEqual([1, ''])
  expect(stderr).toMatch(/^error: Cannot check crash: Error: broken\\x1b\[31m\n {2}next: .*\n$/)
})
