import type {
  EgressDeniedEventData,
  ErrorEventData,
  EventType,
  LimitEventData,
  LogLine,
  OutputEventData,
} from '@ash-ai/shared'
import type { Db } from '../db/open-db.ts'

/** Entries of a session's log that tell what its sandbox did and ran into. */
const LOG_TYPES = ['log', 'limit', 'egress_denied', 'error', 'output'] as const
type LogType = (typeof LOG_TYPES)[number]

/** Entries looked at for the last lines, and how long those may be together: an entry may have megabytes. */
const MAX_ENTRIES = 1_000
const MAX_CHARS = 4 * 1024 * 1024
const MAX_LINE_CHARS = 10_000

export const isLogType = (type: EventType): type is LogType => LOG_TYPES.some((known) => known === type)

interface LogRange {
  tenantId: string
  sessionId: string
  /** Nothing older. */
  sinceMs: number
  tail: number
}

/** The last lines, the oldest first, and the place in the log after which nothing was looked at. */
export async function tailLines(
  db: Db,
  { tenantId, sessionId, sinceMs, tail }: LogRange,
  upTo: number,
): Promise<LogLine[]> {
  if (tail === 0) return []
  const rows = await db
    .selectFrom('session_events')
    .select(['seq', 'type', 'data', 'created_at'])
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('type', 'in', LOG_TYPES)
    .where('created_at', '>=', sinceMs)
    .where('seq', '<=', upTo)
    .orderBy('seq', 'desc')
    .limit(Math.min(tail, MAX_ENTRIES))
    .execute()
  const lines: LogLine[] = []
  let chars = 0
  for (const { seq, type, data, created_at } of rows) {
    chars += data.length
    if (lines.length >= tail || chars > MAX_CHARS) break
    const time = new Date(created_at).toISOString()
    lines.unshift(...toLines(type as LogType, data).map((text) => ({ seq, type, text, time })))
  }
  return lines.slice(-tail)
}

/** An entry as text. What it holds was written by this server, the words in it by whatever runs inside. */
export function toLines(type: LogType, json: string): string[] {
  const text = toText(type, JSON.parse(json) as unknown).replace(/\r?\n$/, '')
  return text.split(/\r?\n/).map((line) => line.slice(0, MAX_LINE_CHARS))
}

function toText(type: LogType, data: unknown): string {
  switch (type) {
    case 'log': {
      const { source, text } = data as { source?: string; text: string }
      return source === undefined ? text : text.replace(/^/gm, `[${source}] `)
    }
    case 'output':
      return (data as OutputEventData).text
    case 'limit': {
      const { code, resource, limit, count } = data as LimitEventData
      return `limit met: ${resource} ${limit} (${code}${times(count)})`
    }
    case 'egress_denied': {
      const { host, port, reason, setting, count } = data as EgressDeniedEventData
      return `refused: ${host}:${port}, ${setting ? `${setting} would allow it` : reason}${times(count)}`
    }
    case 'error': {
      const { code, error } = data as ErrorEventData
      return `error ${code}: ${error}`
    }
  }
}

const times = (count: number) => (count > 1 ? `, ${count} times` : '')
