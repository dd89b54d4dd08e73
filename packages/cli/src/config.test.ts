import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { readConfig } from './config.ts'

const dir = mkdtempSync(join(tmpdir(), 'ash-config-'))
writeFileSync(join(dir, 'api-key'), 'local-key\n')
afterAll(() => rmSync(dir, { recursive: true }))

test('the address is the option, else the variable, else where a local server listens', () => {
  const env = { ASH_DATA_DIR: dir, ASH_SERVER_URL: 'http://b:1/', ASH_PORT: '4200', ASH_HOST: '0.0.0.0' }
  expect(readConfig('http://a', env).url).toBe('http://a')
  expect(readConfig(undefined, env).url).toBe('http://b:1')
  expect(readConfig(undefined, { ...env, ASH_SERVER_URL: '' }).url).toBe('http://127.0.0.1:4200')
  expect(readConfig(undefined, { ASH_DATA_DIR: dir }).url).toBe('http://127.0.0.1:4100')
  expect(readConfig(undefined, { ASH_DATA_DIR: dir, ASH_HOST: '::1' }).localUrl).toBe('http://[::1]:4100')
})

test('the local key is for the local server and sent to no other', () => {
  const env = { ASH_DATA_DIR: dir }
  expect(readConfig(undefined, env).apiKey).toBe('local-key')
  expect(readConfig('http://localhost:9', env).apiKey).toBe('local-key')
  expect(readConfig('https://ash.example.com', env).apiKey).toBeUndefined()
  expect(readConfig('http://127.0.0.1.example.com', env).apiKey).toBeUndefined()
  expect(readConfig('https://ash.example.com', { ...env, ASH_API_KEY: 'mine' }).apiKey).toBe('mine')
})

test.each(['nonsense', 'ftp://a', 'file:///etc', 'http://user:pw@a'])('the address %s is refused', (url) => {
  expect(() => readConfig(url, { ASH_DATA_DIR: dir })).toThrow('is not the address of a server')
})

test('a relative data directory is meant from here, also for a server', () => {
  expect(readConfig(undefined, { ASH_DATA_DIR: 'data' }).dataDir).toBe(join(process.cwd(), 'data'))
})

test('a bad port is refused by name', () => {
  expect(() => readConfig(undefined, { ASH_PORT: '99999' })).toThrow('ASH_PORT')
})

test('a server gets only the variables it is configured by', () => {
  const wanted = { ASH_PORT: '1', ANTHROPIC_API_KEY: 'k', PATH: '/bin', https_proxy: 'p', TZ: 'UTC' }
  const env = {
    ...wanted,
    ASH_DATA_DIR: dir,
    AWS_SECRET_ACCESS_KEY: 's',
    NODE_OPTIONS: '--x',
    LD_PRELOAD: 'l',
  }
  expect(readConfig(undefined, env).serverEnv).toEqual({ ...wanted, ASH_DATA_DIR: dir })
  const store = { ASH_DATA_DIR: dir, ASH_SNAPSHOT_URL: 's3://bucket', AWS_SECRET_ACCESS_KEY: 's' }
  expect(readConfig(undefined, { ...store, LD_PRELOAD: 'l' }).serverEnv).toEqual(store)
})
