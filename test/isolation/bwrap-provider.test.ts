import { chooseLimits, createProvider, type LimitBackend } from '@ash-ai/sandbox'
import { describeSandboxProvider } from '@ash-ai/sandbox/testing'
import { afterAll } from 'vitest'
import { makeProviderFixture, nextOwner } from './support/provider-fixture.ts'

let limits: LimitBackend | undefined
afterAll(() => limits?.close())

describeSandboxProvider('bwrap, under control groups', async () => {
  limits = await chooseLimits(`ash-suite-${process.pid}`, true)
  return makeProviderFixture(createProvider('bwrap', limits), { nextOwner, ownVariables: [] })
})

describeSandboxProvider('bwrap, without control groups', () =>
  makeProviderFixture(createProvider('bwrap'), { nextOwner, ownVariables: [] }),
)
