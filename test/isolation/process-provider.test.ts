import { createProvider } from '@ash-ai/sandbox'
import { describeSandboxProvider } from '@ash-ai/sandbox/testing'
import { makeProviderFixture } from './support/provider-fixture.ts'

describeSandboxProvider('process', () =>
  makeProviderFixture(createProvider('process'), {
    nextOwner: () => undefined,
    ownVariables: ['IS_SANDBOX'],
  }),
)
