import { AshError } from '@ash-ai/shared'

/** Place of a row in a list that has the newest first; of rows as old, the larger id comes first. */
interface Place {
  createdAt: number
  id: string
}

/** A cursor is the place of the last row of the page before. Throws `validation_failed`. */
export function parseCursor(cursor: string): Place {
  const [, createdAt, id] = /^(\d{1,15})\.([0-9a-f-]{36})$/.exec(cursor) ?? []
  if (createdAt === undefined || id === undefined) {
    throw new AshError('validation_failed', 'The cursor is not one of this list', {
      details: [{ path: 'cursor', message: 'must be the nextCursor of an earlier reply' }],
    })
  }
  return { createdAt: Number(createdAt), id }
}

/** One row more than `limit` tells that there is a next page. */
export function toPage<Row extends { created_at: number; id: string }>(
  rows: Row[],
  limit: number,
): { rows: Row[]; nextCursor: string | undefined } {
  const page = rows.slice(0, limit)
  const last = page.at(-1)
  return {
    rows: page,
    nextCursor: rows.length > limit && last ? `${last.created_at}.${last.id}` : undefined,
  }
}
