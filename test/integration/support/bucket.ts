import { readdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { S3_TEST_KEY, type useS3 } from '@ash-ai/sandbox/testing'

/** What a server needs to keep its checkpoints there. */
export function bucketSettings(s3: ReturnType<typeof useS3>, folder: string): Record<string, string> {
  const { bucket, prefix, endpoint = '' } = s3.server().config(`${folder}/`)
  return {
    ASH_SNAPSHOT_URL: `s3://${bucket}/${prefix}`,
    ASH_S3_ENDPOINT: endpoint,
    AWS_ACCESS_KEY_ID: S3_TEST_KEY,
    AWS_SECRET_ACCESS_KEY: S3_TEST_KEY,
  }
}

/** The file in which the store keeps the object whose name ends like this. */
export async function findObject(s3: ReturnType<typeof useS3>, folder: string, ending: string) {
  const place = dirname(s3.server().objectFile(`${folder}/x`))
  const entries = await readdir(place, { recursive: true, withFileTypes: true })
  const found = entries.find(({ name }) => name.endsWith(`${ending}._S3rver_object`))
  if (!found) throw new Error(`the bucket has no ${ending}`)
  return join(found.parentPath, found.name)
}
