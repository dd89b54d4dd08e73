import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:net'
import { inspect } from 'node:util'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { describeRemoteStore } from '../testing/blob-store-suite.ts'
import { useS3 } from '../testing/s3-server.ts'
import { openRemoteStore } from './remote-open.ts'
import type { RemoteStore, RemoteStoreConfig } from './remote-store.ts'
import { openS3Store } from './s3-store.ts'

const s3 = useS3()

async function open(config: RemoteStoreConfig, storeId = 'database-1'): Promise<RemoteStore> {
  const store = await openRemoteStore(config, storeId)
  onTestFinished(() => store.close())
  return store
}

describeRemoteStore('S3', async () => {
  const config = s3.place()
  return {
    open: (storeId) => open(config, storeId),
    age: (tenantId, hash, ms) =>
      s3.server().age(`${config.prefix}${tenantId}/${hash.slice(0, 2)}/${hash}`, ms),
    stop: () => s3.server().stop(),
    start: () => s3.server().start(),
  }
})

describe('a bucket', () => {
  test('that does not exist is named', async () => {
    const config = { ...s3.place(), bucket: 'no-such-bucket' }
    await expect(open(config)).rejects.toThrow('Create the bucket "no-such-bucket"')
  })

  test('that refuses the credentials is told without them', async () => {
    const config = s3.place()
    vi.stubEnv('AWS_ACCESS_KEY_ID', 'SOMEBODY-ELSE')
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'very-secret-value')
    const failure = await open(config).catch((error: Error) => error)
    expect(failure).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('Check the credentials'),
    })
    expect(inspect(failure, { depth: 9 })).not.toMatch(/SOMEBODY|very-secret/)
  })

  test('whose prefix was taken over is not listed, so that nothing of it is deleted', async () => {
    const { remote: store, prefix } = await s3.open()
    await writeFile(s3.server().objectFile(`${prefix}ash-store`), 'database-2')
    await expect(Array.fromAsync(store.list('t1'))).rejects.toThrow('another database')
  })

  test('may hold objects of others: they are not listed', async () => {
    const { remote: outer, config } = await s3.open()
    const inner = await open({ ...config, prefix: `${config.prefix}t1/` })
    await inner.put('t2', 'b'.repeat(64), Buffer.from('x'))
    expect(await Array.fromAsync(outer.list('t1'))).toEqual([])
  })

  test('that nobody serves is told with its address', async () => {
    const port = await refusingPort()
    const config = { ...s3.place(), endpoint: `http://127.0.0.1:${port}` }
    const store = await open(config)
    expect(store.isReachable).toBe(false)
    await expect(store.has('t1', 'a'.repeat(64))).rejects.toThrow(`127.0.0.1:${port} can be reached`)
  })
})

test('a store that takes the request and never answers is given up', async () => {
  const silent = createServer().listen(0, '127.0.0.1')
  await once(silent, 'listening')
  onTestFinished(() => void silent.close())
  const endpoint = `http://127.0.0.1:${portOf(silent)}`
  const store = await openS3Store({ ...s3.place(), endpoint }, 'database-1', 200)
  onTestFinished(() => store.close())
  await expect(store.has('t1', 'a'.repeat(64))).rejects.toMatchObject({ code: 'store_unavailable' })
})

async function refusingPort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const port = portOf(probe)
  probe.close()
  return port
}

function portOf(server: Server): number {
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}
