import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { S3_TEST_KEY, useS3 } from '@ash-ai/sandbox/testing'
import { expect, test } from 'vitest'
import { deployTestAgent } from '../support/conversation.ts'
import { startFaultyServer } from './support/fault-points.ts'
import { expectOneOf, LifecycleSession, loseFolders } from './support/lifecycle-session.ts'
import { buildPacedBridge } from './support/paced-bridge.ts'

const s3 = useS3()

test('wherever the server dies while it uploads, another host can restore every checkpoint in the end', async () => {
  await using bridge = await buildPacedBridge()
  const { bucket, prefix, endpoint = '', region = '' } = s3.server().config('lifecycle/')
  await using server = await startFaultyServer({
    ASH_BRIDGE_ENTRY: bridge.path,
    ASH_SNAPSHOT_URL: `s3://${bucket}/${prefix}`,
    ASH_S3_ENDPOINT: endpoint,
    ASH_S3_REGION: region,
    AWS_ACCESS_KEY_ID: S3_TEST_KEY,
    AWS_SECRET_ACCESS_KEY: S3_TEST_KEY,
  })
  await deployTestAgent(server.client)
  const session = await LifecycleSession.create(server, 'zebra')
  await server.kill()
  for (const point of ['upload-blobs', 'upload-manifest', 'upload-recorded']) {
    // Dies before it has said that it listens where there is something left to upload.
    await server.arm(point).catch(() => {})
    await server.client.checkpoints.create(session.id).catch(() => {})
    await server.died()
  }
  await server.revive()
  const list = async () => (await server.client.checkpoints.list(session.id)).checkpoints
  await expect.poll(list, { timeout: 30_000 }).toSatisfy(isUploaded)

  await server.kill()
  await loseFolders(server, session.id)
  await rm(join(server.dataDir, 'snapshots'), { recursive: true })
  await server.revive()
  expect(await server.client.sessions.resume(session.id)).toMatchObject({ resumed: 'cold_remote' })
  expectOneOf(await session.tree(), [session.second], 'resumed')
  const known = new Map([[session.firstCheckpoint, session.first]])
  await session.expectCheckpoints(known, [session.first, session.second])
})

const isUploaded = (checkpoints: { isUploaded: boolean }[]) =>
  checkpoints.every(({ isUploaded }) => isUploaded)
