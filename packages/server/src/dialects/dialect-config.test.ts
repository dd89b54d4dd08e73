import { expect, test } from 'vitest'
import { readConfig } from '../config.ts'

const read = (env: Record<string, string>) =>
  readConfig(env, { isRoot: false, homeDir: '/home/ada' }).dialects

test('there is no listener unless one is asked for', () => {
  expect(read({})).toBeUndefined()
  expect(read({ ASH_DIALECT_PORT: '8000' })).toEqual({ port: 8000, keys: 'on', providers: {} })
})

test('providers are mapped by name', () => {
  const env = { ASH_DIALECT_PORT: '8000', ASH_DIALECT_PROVIDER_MAP: 'E2B=bwrap, docker=bwrap' }
  expect(read(env)?.providers).toEqual({ e2b: 'bwrap', docker: 'bwrap' })
  for (const map of ['e2b', 'e2b=', '=bwrap', 'e2b=bwrap,', 'a=b=c'])
    expect(() => read({ ...env, ASH_DIALECT_PROVIDER_MAP: map }), map).toThrow('ASH_DIALECT_PROVIDER_MAP')
})

test('keys are as those of the server unless something else is said', () => {
  const env = { ASH_DIALECT_PORT: '8000', ASH_KEYS: 'off' }
  expect(read(env)?.keys).toBe('off')
  expect(read({ ...env, ASH_DIALECT_KEYS: 'on' })?.keys).toBe('on')
})

test('keys are off on loopback alone', () => {
  const env = { ASH_DIALECT_PORT: '8000', ASH_DIALECT_KEYS: 'off' }
  for (const host of ['127.0.0.1', 'localhost', '::1'])
    expect(read({ ...env, ASH_HOST: host })?.keys).toBe('off')
  for (const host of ['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example', 'ash.example'])
    expect(() => read({ ...env, ASH_HOST: host }), host).toThrow('ASH_DIALECT_KEYS')
})
