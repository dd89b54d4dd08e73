import { AshError, type ErrorCode } from '@ash-ai/sdk'
import { expect, test } from 'vitest'
import { toFailure } from './failure.ts'

test.each<[ErrorCode, number, string]>([
  ['session_paused', 1, 'ash session resume <id>'],
  ['turn_in_progress', 1, 'ash session interrupt <id>'],
  ['session_conflict', 1, 'ash session show <id>'],
  ['archive_invalid', 1, 'tar -cz'],
  ['no_checkpoint', 1, 'ash session checkpoint <id>'],
  ['checkpoint_not_found', 5, 'ash session checkpoints <id>'],
  ['checkpoint_damaged', 1, 'ash session rollback <id> <checkpoint>'],
  ['files_lost', 1, 'ASH_SNAPSHOT_URL'],
  ['store_unavailable', 1, 'ASH_SNAPSHOT_URL'],
])('%s says what to do next', (code, exitCode, next) => {
  const failure = toFailure(new AshError(code, 'No.'), 'http://127.0.0.1:4100')
  expect(failure).toMatchObject({ message: 'No.', exitCode })
  expect(failure.next).toContain(next)
})
