import { AshError } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { type InstallFindings, PackageInstalls } from './package-installs.ts'

const nothing: InstallFindings = { warnings: [], restartKernels: false }

test('one at a time in a session, any number in several', async () => {
  const installs = new PackageInstalls()
  const gate = Promise.withResolvers<InstallFindings>()
  const { ended } = installs.begin('a', { pip: ['x'] }, () => gate.promise)
  expect(() => installs.begin('a', { pip: ['y'] }, async () => nothing)).toThrow('are being installed')
  await installs.begin('b', { pip: ['x'] }, async () => nothing).ended
  gate.resolve({ warnings: ['w'], restartKernels: true })
  expect(await ended).toMatchObject({ status: 'completed', warnings: ['w'], restartKernels: true })
  await installs.begin('a', { pip: ['y'] }, async () => nothing).ended
})

test('a failure is remembered and does not stand in the way', async () => {
  const installs = new PackageInstalls()
  const fail = async () => {
    throw new AshError('setup_failed', 'pip said no')
  }
  await expect(installs.begin('a', { pip: ['x'] }, fail).ended).rejects.toThrow('pip said no')
  expect(installs.find('a')).toMatchObject({
    status: 'failed',
    error: { code: 'setup_failed', message: 'pip said no' },
  })
  await installs.begin('a', { pip: ['x'] }, async () => nothing).ended
})

test('what is remembered is bounded', async () => {
  const installs = new PackageInstalls()
  for (let i = 0; i < 1_100; i++) await installs.begin(`s${i}`, {}, async () => nothing).ended
  expect(installs.find('s0')).toBeUndefined()
  expect(installs.find('s1099')?.status).toBe('completed')
})
