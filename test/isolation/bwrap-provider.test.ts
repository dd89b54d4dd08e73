import { chooseLimits, createProvider, type LimitBackend } from '@ash-ai/sandbox'
import { describeInterpreters, describeSandboxProvider } from '@ash-ai/sandbox/testing'
import { afterAll } from 'vitest'
import { makeProviderFixture, nextOwner } from './support/provider-fixture.ts'

let limits: LimitBackend | undefined
afterAll(() => limits?.close())

const underGroups = async () => {
  limits ??= await chooseLimits(`ash-suite-${process.pid}`, true)
  return makeProviderFixture(createProvider('bwrap', limits), { nextOwner, ownVariables: [] })
}
const withoutGroups = () => makeProviderFixture(createProvider('bwrap'), { nextOwner, ownVariables: [] })

describeSandboxProvider('bwrap, under control groups', underGroups)
describeSandboxProvider('bwrap, without control groups', withoutGroups)
describeInterpreters('bwrap, under control groups', underGroups, { isolation: true, groups: true })
describeInterpreters('bwrap, without control groups', withoutGroups, { isolation: true, groups: false })
