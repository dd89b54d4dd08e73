import { createProvider } from '@ash-ai/sandbox'
import { describeInterpreters, describeSandboxProvider } from '@ash-ai/sandbox/testing'
import { makeProviderFixture } from './support/provider-fixture.ts'

const make = () =>
  makeProviderFixture(createProvider('process'), {
    nextOwner: () => undefined,
    ownVariables: ['IS_SANDBOX'],
  })

describeSandboxProvider('process', make)
describeInterpreters('process', make, { isolation: false, groups: false })
