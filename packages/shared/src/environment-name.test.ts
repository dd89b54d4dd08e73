import { expect, test } from 'vitest'
import { toTemplateName } from './environment-name.ts'

test.each([
  ['Python3', [], 'python'],
  ['PYTHON', ['node', 'python'], 'python'],
  ['Node', ['node'], 'node'],
  ['Data', ['data', 'Data'], 'Data'],
  ['DATA', ['data', 'other'], 'data'],
  ['python3', ['Python3'], 'Python3'],
  ['unknown', [], 'unknown'],
])('the environment %s among %j is %s', (environment, templates, name) => {
  expect(toTemplateName(environment, templates)).toBe(name)
})
