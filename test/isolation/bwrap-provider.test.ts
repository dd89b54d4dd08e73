import { createProvider } from '@ash-ai/sandbox'
import { describeSandboxProvider } from '@ash-ai/sandbox/testing'
import { makeProviderFixture, nextOwner } from './support/provider-fixture.ts'

describeSandboxProvider('bwrap', () =>
  makeProviderFixture(createProvider('bwrap'), { nextOwner, ownVariables: [] }),
)
