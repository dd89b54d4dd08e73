import { expect, test } from 'vitest'
import { countsByNamespace } from './rlimit.ts'

test.each([
  ['4.19.0-27-amd64', false],
  ['5.10.0-30-amd64', false],
  ['5.13.19', false],
  ['5.14.0-427.el9.x86_64', true],
  ['5.15.167.4-microsoft-standard-WSL2', true],
  ['6.1.0', true],
  ['unknown', false],
])('whether kernel %s counts the processes of each user namespace: %s', (kernel, counts) => {
  expect(countsByNamespace(kernel)).toBe(counts)
})
