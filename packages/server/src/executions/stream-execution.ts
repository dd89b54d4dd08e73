import { formatSSE, isFinished } from '@ash-ai/shared'
import type { FastifyReply } from 'fastify'
import { SSEWriter } from '../http/sse-writer.ts'
import { dataOf, type EventLog, type Frame } from '../sessions/event-log.ts'
import { assertRoomForReader } from '../sessions/stream-log.ts'
import type { ExecutionRow } from './execution-queries.ts'
import { executionJson } from './execution-reply.ts'
import type { Output } from './output-queries.ts'

export interface ExecutionStream {
  executionId: string
  log: EventLog
  /** The log before the first entry of the execution. */
  after: number
  /** Where the log ends for an execution that has ended: whatever it holds of it is before. */
  upTo?: number | undefined
  /** Ends the stream from this side. */
  closing: AbortSignal
  /** Resolves when the execution has ended. */
  outcome: () => Promise<{ row: ExecutionRow; output: Output }>
}

/** The entries of one execution as they become durable, and at the end all of it. Others share the log. */
export async function streamExecution(reply: FastifyReply, stream: ExecutionStream): Promise<void> {
  assertRoomForReader(stream.log)
  const writer = new SSEWriter(reply)
  writer.begin()
  try {
    if (!(await copyEntries(writer, stream))) return writer.destroy()
    const { row, output } = await stream.outcome()
    await writer.end(formatSSE({ event: 'result', data: executionJson(row, output) }))
  } catch (error) {
    // The headers are out: only a broken connection tells the client that this is not the end.
    writer.destroy()
    throw error
  }
}

/** True where the last entry was sent, or there is none to come. */
async function copyEntries(
  writer: SSEWriter,
  { log, after, upTo = Number.POSITIVE_INFINITY, executionId, closing }: ExecutionStream,
): Promise<boolean> {
  if (after >= upTo) return true
  const signal = AbortSignal.any([writer.signal, closing])
  for await (const frames of log.read({ seq: after, sub: 0 }, signal)) {
    const own = frames.filter((frame) => isEntryOf(frame, executionId))
    const last = own.findIndex(isLast)
    const sent = last < 0 ? own : own.slice(0, last + 1)
    if (sent.length > 0) await writer.write(sent.map(({ text }) => text).join(''))
    if (last >= 0 || (frames.at(-1)?.seq ?? 0) >= upTo) return true
  }
  return false
}

const isEntryOf = ({ type, turnId }: Frame, executionId: string) =>
  turnId === executionId && (type === 'execution' || type === 'output')

function isLast(frame: Frame): boolean {
  if (frame.type !== 'execution') return false
  return isFinished((JSON.parse(dataOf(frame)) as { status: ExecutionRow['status'] }).status)
}
