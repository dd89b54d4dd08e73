import type { RunOutcome } from '@ash-ai/shared'

/** What a run that failed while the kernel killed for memory died of, whatever it says itself. */
export function asOutOfMemory(outcome: RunOutcome, memoryMb: number): RunOutcome {
  if (outcome.status !== 'failed') return outcome
  const message = `The code used more than its ${memoryMb} MB of memory and was killed`
  return { ...outcome, error: { ...outcome.error, name: 'OutOfMemory', message } }
}
