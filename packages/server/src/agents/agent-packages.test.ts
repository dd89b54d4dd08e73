import { execFile } from 'node:child_process'
import { parsePolicy } from '@ash-ai/sandbox'
import type { Network } from '@ash-ai/shared'
import { describe, expect, test } from 'vitest'
import { type PackageIndexes, packageSteps } from './agent-packages.ts'

const BOTH = { pip: ['requests>=2,<3'], npm: ['left-pad@^1.3.0'] }
/** Where pip and npm look by themselves. */
const DEFAULT = {}
const OWN = { pip: 'http://index.internal:3141/simple', npm: 'https://packages.internal/npm/' }
const steps = (packages: typeof BOTH | object, indexes: PackageIndexes, network: Network) =>
  packageSteps({ packages, dir: '/agent' }, indexes, parsePolicy(network))

describe('the network policy must allow the index', () => {
  test.each<[PackageIndexes, Network, string]>([
    [DEFAULT, 'none', 'network: ["pypi.org", "files.pythonhosted.org"]'],
    [DEFAULT, ['pypi.org'], 'network: ["files.pythonhosted.org"]'],
    [DEFAULT, ['pypi.org', '*.pythonhosted.org'], 'network: ["registry.npmjs.org"]'],
    [OWN, 'none', 'network: ["index.internal:3141"]'],
    [OWN, ['index.internal'], 'network: ["index.internal:3141"]'],
    [OWN, ['index.internal:3141'], 'network: ["packages.internal"]'],
    [{ ...OWN, pip: 'http://[fd00::1]:3141/' }, 'none', 'network: ["[fd00::1]:3141"]'],
  ])('%j is out of reach of %j', (indexes, network, setting) => {
    const wanted = expect.objectContaining({
      code: 'setup_failed',
      message: expect.stringContaining(setting),
    })
    expect(() => steps(BOTH, indexes, network)).toThrow(wanted)
  })

  test.each<[PackageIndexes, Network]>([
    [DEFAULT, 'open'],
    [DEFAULT, ['pypi.org', 'files.pythonhosted.org', 'registry.npmjs.org']],
    [OWN, ['*.internal', '*.internal:3141']],
    [{ ...OWN, pip: 'http://[fd00::1]:3141/' }, ['[fd00::1]:3141', 'packages.internal']],
  ])('%j is within reach of %j', (indexes, network) => {
    expect(steps(BOTH, indexes, network).map(({ name }) => name)).toEqual(['pip', 'npm'])
  })

  test('nothing to install needs nothing', () => {
    expect(steps({}, DEFAULT, 'none')).toEqual([])
    expect(steps({ pip: [], npm: [] }, DEFAULT, 'none')).toEqual([])
  })
})

test('a machine without the program is told what to install', async () => {
  for (const { command, missing } of steps(BOTH, OWN, 'open')) {
    const code = await new Promise((resolve) => {
      execFile('/bin/bash', ['-c', command], { env: { PATH: '/nonexistent' } }, (error) =>
        resolve(error?.code),
      )
    })
    expect(code).toBe(missing.exitCode)
    expect(missing.remedy).toMatch(/apt-get install -y \w/)
  }
})

test('an index without TLS is trusted because the operator chose it, one with TLS is checked', () => {
  const [pip] = steps(BOTH, OWN, 'open')
  expect(pip?.command).toContain(
    "--index-url 'http://index.internal:3141/simple' --trusted-host 'index.internal:3141'",
  )
  expect(steps(BOTH, DEFAULT, 'open')[0]?.command).not.toContain('--trusted-host')
})

test('packages without an agent are not said to be an agent’s', () => {
  const alone = () => packageSteps({ packages: BOTH }, DEFAULT, parsePolicy('none'))
  expect(alone).toThrow(/^The network policy keeps packages\.pip out of reach\. Allow it: network: \["pypi/)
})

test('packages are installed for the Python that is to run them', () => {
  const [pip] = packageSteps({ packages: BOTH, python: 'python3.11' }, OWN, parsePolicy('open'))
  expect(pip?.command).toContain('python3.11 -m venv')
  expect(pip?.missing.remedy).toContain('python3.11 python3.11-venv')
})
