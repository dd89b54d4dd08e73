import { describe, expect, test } from 'vitest'
import { summarise } from './diagnose.ts'
import { type Finding, fail, type LimitsReport, ok, type Verdict, warn } from './finding.ts'
import { judgeBwrap, judgeCoreDumps } from './isolation-checks.ts'
import { judgeDisk, judgeLimits } from './limits-check.ts'
import { formatDiagnosis } from './report.ts'

const finding = (title: string, verdict: Verdict): Finding => ({ id: title.toLowerCase(), title, ...verdict })
const report = (backend: string, held: string): LimitsReport => ({
  backend,
  enforcement: {
    memoryMb: held,
    cpus: held,
    openFiles: 'hard',
    diskMb: held,
  } as unknown as LimitsReport['enforcement'],
})
const LIMITS = { report: report('cgroup-v1', 'hard'), findings: [finding('Limits', ok('cgroup-v1'))] }

describe('the report', () => {
  test('has a line for each finding and one for each remedy', () => {
    const server = [finding('Model', warn('no key', 'export ANTHROPIC_API_KEY=…')), finding('Node', ok('24'))]
    const text = formatDiagnosis(summarise('bwrap', [finding('System', ok('Linux'))], LIMITS, server))
    expect(text.split('\n')).toEqual([
      '✓ System: Linux',
      '✓ Limits: cgroup-v1',
      '! Model: no key',
      '    fix: export ANTHROPIC_API_KEY=…',
      '✓ Node: 24',
      '',
      'Isolation: bwrap. Sandboxes can run; what is marked ! could be better.',
      '',
    ])
  })

  test('says when nothing is missing', () => {
    const text = formatDiagnosis(summarise('bwrap', [finding('System', ok('Linux'))], LIMITS, []))
    expect(text).toContain('Isolation: bwrap. Sandboxes can run.\n')
  })

  test('shows what other programs said without line breaks and control characters', () => {
    const said = fail('bwrap:\n no \x1b[31mway\x07', 'sysctl\r\n-w')
    const text = formatDiagnosis(summarise('bwrap', [finding('Namespaces', said)], LIMITS, []))
    expect(text).toContain('✗ Namespaces: bwrap: no [31mway\n    fix: sysctl -w\n')
  })
})

describe('the summary', () => {
  const noBwrap = [finding('Bubblewrap', fail('missing', 'apt-get'))]

  test('without bubblewrap there is no isolation, and no sandbox', () => {
    const { summary } = summarise('bwrap', noBwrap, LIMITS, [])
    expect(summary).toMatchObject({ isolation: 'none', canRunSandboxes: false })
  })

  test('the process provider runs without it, and never counts as isolation', () => {
    const { summary, findings } = summarise('process', noBwrap, LIMITS, [])
    expect(summary).toMatchObject({ isolation: 'none', canRunSandboxes: true })
    expect(findings[0]).toMatchObject({ status: 'warn', fix: 'apt-get' })
    expect(summarise('process', [], LIMITS, []).summary.isolation).toBe('none')
  })

  test('a server that cannot start runs no sandboxes', () => {
    const { summary } = summarise('bwrap', [], LIMITS, [finding('Port', fail('taken'))])
    expect(summary).toMatchObject({ isolation: 'bwrap', canRunSandboxes: false })
  })
})

describe('bubblewrap', () => {
  test.each([
    [undefined, 'fail', 'does not run'],
    ['bubblewrap 0.7.9', 'fail', 'too old'],
    ['bubblewrap 0.8.0', 'ok', 'GHSA-pxhw-h44j-8pfx'],
    ['bubblewrap 0.11.2', 'ok', 'GHSA-pxhw-h44j-8pfx'],
    ['bubblewrap 0.12.0', 'ok', /^bubblewrap 0\.12\.0$/],
    ['bubblewrap 1.0.0', 'ok', /^bubblewrap 1\.0\.0$/],
  ])('%s is %s', (version, status, detail) => {
    const verdict = judgeBwrap(version)
    expect(verdict).toMatchObject({ status, detail: expect.stringMatching(detail) })
    expect(verdict.fix !== undefined).toBe(status === 'fail')
  })
})

describe('limits', () => {
  test('held by the kernel or watched are fine', () => {
    expect(judgeLimits(report('cgroup-v1', 'hard'))).toEqual(
      ok('cgroup-v1. held by the kernel: memory, CPU, open files'),
    )
    expect(judgeLimits(report('cgroup-v1', 'polled'))).toEqual(
      ok('cgroup-v1. held by the kernel: open files; watched: memory, CPU'),
    )
  })

  test('without control groups the report says what is not limited and how to get them', () => {
    const verdict = judgeLimits(report('rlimit', 'none'))
    expect(verdict).toMatchObject({
      status: 'warn',
      detail: expect.stringContaining('NOT limited: memory, CPU'),
    })
    expect(verdict.fix).toBeTruthy()
  })

  test('a disk that is only watched is worth a word', () => {
    expect(judgeDisk(report('cgroup-v1', 'hard'))).toMatchObject({ status: 'ok' })
    const watched = judgeDisk(report('cgroup-v1', 'polled'))
    expect(watched).toMatchObject({ status: 'warn', detail: expect.stringContaining('watched') })
    expect(watched.fix).toBeTruthy()
  })
})

test.each([
  ['a file', 'core', 'ok', 'would be files'],
  ['a file in a folder', '/var/crash/core.%p', 'ok', 'would be files'],
  ['nobody', '|/bin/false', 'ok', 'drops them'],
  [
    'a program',
    '|/usr/lib/systemd/systemd-coredump %P %u',
    'warn',
    'go to /usr/lib/systemd/systemd-coredump',
  ],
  ['a socket', '@/run/coredump.socket', 'warn', 'go to /run/coredump.socket on the host'],
])('core dumps that go to %s', (_, pattern, status, detail) => {
  const verdict = judgeCoreDumps(pattern)
  expect(verdict).toMatchObject({ status, detail: expect.stringContaining(detail) })
  expect(verdict.fix ?? 'none').toContain(status === 'warn' ? 'sysctl -w kernel.core_pattern=core' : 'none')
})
