import { writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { aboutPath } from './file-errors.ts'

test('a disk without room is told as that, and not as a fault of the server', async () => {
  const writing = aboutPath('note.txt', () => writeFile('/dev/full', 'text'))
  await expect(writing).rejects.toMatchObject({
    code: 'disk_full',
    statusCode: 507,
    isRetryable: false,
    message: expect.stringContaining('"note.txt"'),
    cause: expect.objectContaining({ code: 'ENOSPC' }),
  })
})
