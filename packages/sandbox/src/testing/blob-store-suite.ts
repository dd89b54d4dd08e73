import { createHash, randomBytes } from 'node:crypto'
import { isAshError } from '@ash-ai/shared'
import { beforeEach, describe, expect, test } from 'vitest'
import type { RemoteStore } from '../checkpoints/remote-store.ts'

export interface BlobStoreFixture {
  /** Over the same storage each time; nothing is in it before a test. */
  open(storeId: string): Promise<RemoteStore>
  /** As if the object had been stored that long ago. */
  age(tenantId: string, hash: string, ms: number): Promise<void>
  /** From now on nothing answers. */
  stop(): Promise<void>
  start(): Promise<void>
}

/** What every remote store promises. */
export function describeRemoteStore(name: string, makeFixture: () => Promise<BlobStoreFixture>): void {
  describe(`${name} as a remote store`, () => {
    let fixture: BlobStoreFixture
    let store: RemoteStore
    beforeEach(async () => {
      fixture = await makeFixture()
      store = await fixture.open('database-1')
    })

    test('what was put is got, whatever its size', async () => {
      for (const bytes of [Buffer.alloc(0), Buffer.from('x'), randomBytes(3_000_000)]) {
        await store.put('t1', sha256(bytes), bytes)
        expect((await store.get('t1', sha256(bytes)))?.equals(bytes)).toBe(true)
      }
    })

    test('what nobody put is neither got nor there', async () => {
      const hash = sha256(Buffer.from('nothing'))
      expect(await store.get('t1', hash)).toBeUndefined()
      expect(await store.has('t1', hash)).toBeUndefined()
    })

    test('a tenant sees nothing of another', async () => {
      const hash = await putText(store, 't1', 'secret')
      expect(await store.get('t2', hash)).toBeUndefined()
      expect(await listHashes(store, 't2')).toEqual([])
      expect(await listHashes(store, 't')).toEqual([])
      await store.delete('t2', [hash])
      expect(await store.has('t1', hash)).toBeDefined()
    })

    test('whatever a tenant is called, it has a place of its own', async () => {
      const tenants = ['a', 'A', 'a/b', '..', '../a', '', 'ä\n']
      for (const tenantId of tenants) await putText(store, tenantId, `of ${tenantId}`)
      for (const tenantId of tenants) {
        expect(await listHashes(store, tenantId)).toEqual([sha256(Buffer.from(`of ${tenantId}`))])
      }
    })

    test('a sweep is seen by everybody from its begin to its end, and by no other tenant', async () => {
      const other = await fixture.open('database-1')
      expect(await other.isSwept('t1')).toBe(false)
      const [first, second] = [await store.beginSweep('t1'), await other.beginSweep('t1')]
      expect(await store.isSwept('t1')).toBe(true)
      expect(await store.isSwept('t2')).toBe(false)
      await first.end()
      expect(await store.isSwept('t1')).toBe(true)
      await second.end()
      expect(await store.isSwept('t1')).toBe(false)
      expect(await listHashes(store, 't1')).toEqual([])
    })

    test('says how old an object is, and putting it again makes it young', async () => {
      const hash = await putText(store, 't1', 'text')
      await fixture.age('t1', hash, 3_600_000)
      const found = await store.has('t1', hash)
      expect(Date.now() - (found?.modifiedMs ?? 0)).toBeGreaterThan(3_500_000)
      await putText(store, 't1', 'text')
      const again = await store.has('t1', hash)
      expect(Date.now() - (again?.modifiedMs ?? 0)).toBeLessThan(60_000)
    })

    test('lists all objects of a tenant, also those beyond one page', async () => {
      const texts = Array.from({ length: 1_030 }, (_, index) => `text ${index}`)
      const hashes: string[] = []
      for (let start = 0; start < texts.length; start += 16) {
        const batch = texts.slice(start, start + 16)
        hashes.push(...(await Promise.all(batch.map((text) => putText(store, 't1', text)))))
      }
      expect((await listHashes(store, 't1')).sort()).toEqual(hashes.sort())
      const [first] = await Array.fromAsync(store.list('t1'))
      expect(first?.bytes).toBeGreaterThan(5)
      expect(Date.now() - (first?.modifiedMs ?? 0)).toBeLessThan(600_000)
    })

    test('deletes what is named and nothing else, and what is not there without complaint', async () => {
      const hashes = await Promise.all(['a', 'b', 'c'].map((text) => putText(store, 't1', text)))
      const [a = '', b = '', c = ''] = hashes
      await store.delete('t1', [a, b, sha256(Buffer.from('never'))])
      expect(await listHashes(store, 't1')).toEqual([c])
    })

    test('the same database opens it again, another one is refused', async () => {
      const hash = await putText(store, 't1', 'mine')
      const again = await fixture.open('database-1')
      expect(await again.has('t1', hash)).toBeDefined()
      await expect(fixture.open('database-2')).rejects.toThrow('ASH_SNAPSHOT_URL')
    })

    test('a store that does not answer says so, and works once it is back', async () => {
      const hash = await putText(store, 't1', 'text')
      await fixture.stop()
      const failure = await store.get('t1', hash).catch((error: unknown) => error)
      expect(isAshError(failure, 'store_unavailable')).toBe(true)
      await fixture.start()
      expect((await store.get('t1', hash))?.toString()).toBe('text')
    })
  })
}

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')

async function putText(store: RemoteStore, tenantId: string, text: string): Promise<string> {
  const bytes = Buffer.from(text)
  await store.put(tenantId, sha256(bytes), bytes)
  return sha256(bytes)
}

async function listHashes(store: RemoteStore, tenantId: string): Promise<string[]> {
  const objects = await Array.fromAsync(store.list(tenantId))
  return objects.map(({ hash }) => hash)
}
