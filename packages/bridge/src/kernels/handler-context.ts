import process from 'node:process'
import type { HandlerContext } from '@ash-ai/shared'

const { bigint } = process.hrtime

/** By Node's plainest clock: the module of the usual one takes milliseconds to load. */
export const monotonicMs = () => Number(bigint() / 1000n) / 1000

/** What a JavaScript handler gets as its second argument: the fields in both spellings, and those the caller added. */
export function handlerContext(context: Partial<HandlerContext>, deadlineMs: number): object {
  const remaining = () => Math.max(0, Math.floor(deadlineMs - monotonicMs()))
  const fields = {
    functionName: context.functionName,
    functionVersion: context.functionVersion,
    requestId: context.requestId,
    awsRequestId: context.requestId,
    logGroupName: context.logGroupName,
    logStreamName: context.logStreamName,
    memoryLimitInMb: context.memoryLimitMb,
    invokedFunctionArn: context.invokedFunctionArn,
    getRemainingTimeInMillis: remaining,
  }
  const snakeCase = Object.entries(fields).map(([name, value]) => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    value,
  ])
  return {
    ...context.custom,
    ...fields,
    ...Object.fromEntries(snakeCase),
    memoryLimitInMB: context.memoryLimitMb,
    get remainingTimeInMillis() {
      return remaining()
    },
    get remaining_time_in_millis() {
      return remaining()
    },
  }
}
