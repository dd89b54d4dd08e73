import { describe, expect, test } from 'vitest'
import { readConfig } from './config.ts'

const user = { isRoot: false, homeDir: '/home/ada' }
const root = { isRoot: true, homeDir: '/root' }

describe('readConfig', () => {
  test('an empty environment gives a loopback server with the offline model', () => {
    expect(readConfig({}, user)).toEqual({
      port: 4100,
      host: '127.0.0.1',
      keys: 'on',
      previews: { port: 4101, isFixed: false },
      dataDir: '/home/ada/.local/share/ash',
      sqliteSync: 'normal',
      provider: 'bwrap',
      maxSandboxes: 100,
      limits: {
        memoryMb: 2048,
        cpus: 2,
        processes: 512,
        openFiles: 4096,
        fileSizeMb: 1024,
        diskMb: 2048,
        outputMbPerSecond: 32,
      },
      sandboxUids: { base: 200_000, count: 65_536 },
      runtimeDir: '/home/ada/.local/share/ash/runtime',
      allowPathDeploy: false,
      logLevel: 'info',
      turnTimeoutMs: 3_600_000,
      maxLogChars: 4096 * 1024 * 1024,
      debugTiming: false,
      permissionTimeoutMs: 600_000,
      modelIdleTimeoutMs: 300_000,
      shutdownTimeoutMs: 10_000,
      idleTimeoutMs: 600_000,
      codeIdleTimeoutMs: 1_800_000,
      codeLifetimeMs: 21_600_000,
      warmSpares: 0,
      retention: { checkpoints: 100, sessionDays: 30 },
      artifactDays: 30,
      maxArtifactBytes: 1024 * 1024 * 1024,
      gcIntervalMs: 3_600_000,
      packageIndexes: {},
      model: { kind: 'offline' },
    })
  })

  test.each([
    ['s3://bucket', {}, { bucket: 'bucket', prefix: '', pathStyle: false }],
    ['s3://bucket/a/b/', { ASH_S3_REGION: 'eu-1' }, { prefix: 'a/b/', region: 'eu-1', pathStyle: false }],
    ['s3://b-1/x', { ASH_S3_ENDPOINT: 'http://s3.local:9000' }, { bucket: 'b-1', pathStyle: true }],
    [
      'gs://bucket/x',
      {},
      { prefix: 'x/', endpoint: 'https://storage.googleapis.com', region: 'auto', pathStyle: true },
    ],
  ])('checkpoints go to %s with %j', (url, env, store) => {
    expect(readConfig({ ASH_SNAPSHOT_URL: url, ...env }, user).snapshotStore).toMatchObject(store)
  })

  test.each(['http://bucket', 's3:bucket', 's3://', 's3://B/x', 's3://b:9000/x', 's3://bucket/../x y'])(
    'checkpoints go to no such place: %s',
    (url) => {
      expect(() => readConfig({ ASH_SNAPSHOT_URL: url }, user)).toThrow('ASH_SNAPSHOT_URL: must be')
    },
  )

  test.each([
    [{}, root, '/var/lib/ash'],
    [{ XDG_DATA_HOME: '/data' }, user, '/data/ash'],
    [{ XDG_DATA_HOME: '/data' }, root, '/var/lib/ash'],
    [{ ASH_DATA_DIR: '/srv/ash' }, root, '/srv/ash'],
    [{ ASH_DATA_DIR: 'here' }, root, `${process.cwd()}/here`],
  ])('the data directory follows the user: %j', (env, host, dataDir) => {
    expect(readConfig(env, host).dataDir).toBe(dataDir)
  })

  test.each([
    [{ ASH_PORT: '5000' }, { port: 5001, isFixed: false }],
    [{ ASH_PORT: '0' }, { port: 0, isFixed: false }],
    [{ ASH_PREVIEW_PORT: '80' }, { port: 80, isFixed: true }],
    [{ ASH_PREVIEW_PORT: 'off' }, undefined],
    [{ ASH_PREVIEW_PORT: '0' }, undefined],
    [
      { ASH_PREVIEW_HOST: 'preview.example.com' },
      { port: 4101, isFixed: false, url: 'https://preview.example.com' },
    ],
    [
      { ASH_PREVIEW_HOST: 'http://lan.test:8080' },
      { port: 4101, isFixed: false, url: 'http://lan.test:8080' },
    ],
  ])('previews with %j', (env, previews) => {
    expect(readConfig(env, user).previews).toEqual(previews)
  })

  test.each([
    { ASH_PREVIEW_PORT: 'on' },
    { ASH_PREVIEW_PORT: '65536' },
    { ASH_PREVIEW_HOST: 'a/b' },
    { ASH_PREVIEW_HOST: '*.x' },
  ])('no previews with %j', (env) => {
    expect(() => readConfig(env, user)).toThrow(`${Object.keys(env)[0]}: must be`)
  })

  test('an empty variable counts as unset', () => {
    const config = readConfig({ ASH_PORT: '', ASH_API_KEY: ' ', ANTHROPIC_API_KEY: '' }, user)
    expect(config).toMatchObject({ port: 4100, model: { kind: 'offline' } })
    expect(config).not.toHaveProperty('apiKey')
  })

  test.each([
    ['ASH_PORT', '65536'],
    ['ASH_PORT', '-1'],
    ['ASH_PORT', '4100x'],
    ['ASH_PORT', '1e3'],
    ['ASH_PROVIDER', 'docker'],
    ['ASH_SQLITE_SYNC', 'off'],
    ['ASH_MAX_SANDBOXES', '0'],
    ['ASH_SANDBOX_UID_BASE', '0'],
    ['ASH_SANDBOX_UID_COUNT', '4294967294'],
    ['ASH_ALLOW_PATH_DEPLOY', 'maybe'],
    ['ASH_LOG_LEVEL', 'loud'],
    ['ASH_TURN_TIMEOUT_MS', '2147483648'],
    ['ASH_CREDENTIAL_KEY', 'short'],
    ['ASH_DATABASE_URL', 'mysql://localhost/ash'],
    ['ASH_DATABASE_URL', 'not a url'],
    ['ANTHROPIC_BASE_URL', 'ftp://example.com'],
    ['ANTHROPIC_API_KEY', 'two words'],
    ['ANTHROPIC_CUSTOM_HEADERS', 'no colon here'],
    ['CLAUDE_CODE_MAX_RETRIES', 'many'],
  ])('%s=%s is refused by name', (name, value) => {
    expect(() => readConfig({ [name]: value }, user)).toThrow(new RegExp(`^${name}: .*must`))
  })

  test('every fault is named at once and no value is repeated', () => {
    const read = () => readConfig({ ASH_PORT: 'x', ASH_DATABASE_URL: 'hunter2' }, user)
    expect(read).toThrow(/ASH_PORT: .*\nASH_DATABASE_URL: /)
    expect(read).not.toThrow(/hunter2/)
  })

  test.each([
    { ANTHROPIC_API_KEY: 'sk-1' },
    { ANTHROPIC_AUTH_TOKEN: 'token' },
    { ANTHROPIC_BASE_URL: 'http://127.0.0.1:9' },
  ])('%j selects the model API', (env) => {
    expect(readConfig(env, user).model.kind).toBe('anthropic')
  })

  test('custom headers are lines of name and value', () => {
    const env = { ANTHROPIC_API_KEY: 'sk-1', ANTHROPIC_CUSTOM_HEADERS: 'X-Team: a: b\n\nx-empty:\n' }
    expect(readConfig(env, user).model).toEqual({
      kind: 'anthropic',
      baseUrl: 'https://api.anthropic.com',
      apiKey: 'sk-1',
      headers: { 'x-team': 'a: b', 'x-empty': '' },
    })
  })

  test.each([
    ['ASH_PIP_INDEX_URL', 'ftp://index.example'],
    ['ASH_PIP_INDEX_URL', 'https://user:hunter2@index.example/simple'],
    ['ASH_NPM_REGISTRY', "https://packages.example/'; id"],
    ['ASH_NPM_REGISTRY', '--registry'],
  ])('%s=%s is refused without being shown', (name, value) => {
    const read = () => readConfig({ [name]: value }, user)
    expect(read).toThrow(new RegExp(`^${name}: must`))
    expect(read).not.toThrow(/hunter2/)
  })

  test('the result is frozen, nested objects too', () => {
    const config = readConfig({ ANTHROPIC_API_KEY: 'sk-1' }, user)
    expect(Object.isFrozen(config)).toBe(true)
    expect(Object.isFrozen(config.model)).toBe(true)
    expect(Object.isFrozen(config.sandboxUids)).toBe(true)
  })
})
