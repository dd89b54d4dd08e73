export const EXECUTION_STATUSES = [
  'pending',
  'running',
  'completed',
  'failed',
  'timeout',
  'crashed',
  'cancelled',
] as const
export type ExecutionStatus = (typeof EXECUTION_STATUSES)[number]

/** Nothing follows. `crashed` is final once no attempt is left; until then the execution is `pending` again. */
export const isFinished = (status: ExecutionStatus) => status !== 'pending' && status !== 'running'

/** Attempts of an execution that crashed through no fault of its code, the first one included. */
export const MAX_ATTEMPTS = 4
/** Before the second, third and fourth attempt. */
export const RETRY_DELAYS_MS = [1_000, 2_000, 4_000] as const
