import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openSecretBox, SecretBox } from './secret-box.ts'

let dataDir: string
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'ash-secret-'))
})
afterEach(() => rm(dataDir, { recursive: true, force: true }))

const box = new SecretBox(Buffer.alloc(32, 7))

describe('SecretBox', () => {
  test('any JSON comes back, and its text is not in the sealed form', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.string(), (value, aad) => {
        expect(box.open(box.seal(value, aad), aad)).toEqual(JSON.parse(JSON.stringify(value)))
      }),
      { numRuns: 100 },
    )
    expect(box.seal({ TOKEN: 'hunter2' }, 'row')).not.toContain('hunter2')
  })

  test('the same value is sealed differently each time', () => {
    expect(box.seal('x', 'row')).not.toBe(box.seal('x', 'row'))
  })

  test('another row, another key or a changed byte does not open', () => {
    const sealed = box.seal({ a: 1 }, 'tenant:1')
    const bytes = Buffer.from(sealed.slice(3), 'base64url')
    expect(() => box.open(sealed, 'tenant:2')).toThrow('cannot be opened')
    expect(() => new SecretBox(Buffer.alloc(32, 8)).open(sealed, 'tenant:1')).toThrow('cannot be opened')
    for (let index = 0; index < bytes.length; index++) {
      const changed = Buffer.from(bytes)
      changed[index] = (changed[index] ?? 0) ^ 1
      expect(() => box.open(`v1.${changed.toString('base64url')}`, 'tenant:1')).toThrow('cannot be opened')
    }
    for (const broken of ['', 'v1', 'v1.', 'v2.AAAA', sealed.slice(0, 30)]) {
      expect(() => box.open(broken, 'tenant:1')).toThrow('cannot be opened')
    }
  })
})

describe('openSecretBox', () => {
  test('makes a private key file once and uses it again', async () => {
    const boxes = await Promise.all([openSecretBox({ dataDir }), openSecretBox({ dataDir })])
    const sealed = boxes[0].seal('x', 'row')
    expect(boxes[1].open(sealed, 'row')).toBe('x')
    expect((await openSecretBox({ dataDir })).open(sealed, 'row')).toBe('x')
    expect((await stat(join(dataDir, 'secret.key'))).mode & 0o777).toBe(0o600)
  })

  test('a configured key needs no file', async () => {
    const options = { dataDir, credentialKey: 'correct horse battery' }
    const sealed = (await openSecretBox(options)).seal('x', 'row')
    expect((await openSecretBox(options)).open(sealed, 'row')).toBe('x')
    await expect(readFile(join(dataDir, 'secret.key'))).rejects.toThrow('ENOENT')
  })

  test('a damaged key file is refused rather than replaced', async () => {
    await writeFile(join(dataDir, 'secret.key'), 'short')
    await expect(openSecretBox({ dataDir })).rejects.toThrow(/secret\.key does not hold a key/)
    expect(await readFile(join(dataDir, 'secret.key'), 'utf8')).toBe('short')
  })
})
