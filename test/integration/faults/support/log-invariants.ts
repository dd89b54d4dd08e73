import { type SessionEvent, textOf } from '@ash-ai/sdk'
import { expect } from 'vitest'
import { isEntryId, type LogEntry, valueOfEntry, valueOfEvent } from './log-entry.ts'
import type { StoredEntry } from './stored-log.ts'

/** What the test knows of one message that it sent. */
export interface SentTurn {
  mark: string
  answer: string
  /** What the sender was shown of it. */
  seen: SessionEvent[]
  /** Something it needs was killed before it ended, or before it began. */
  wasDisturbed: boolean
}

const isEnd = ({ type }: { type: string }) => type === 'done' || type === 'error'

/** The log has no gap, and each turn in it exactly one end, behind everything else of the turn. */
export function expectWhole(log: StoredEntry[]): void {
  expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1))
  let open: string | null = null
  for (const entry of log) {
    if (entry.type === 'turn') {
      expect(open, `turn ${open} has no end before entry ${entry.seq}`).toBeNull()
      open = entry.turnId
    } else if (entry.turnId !== null) {
      expect(entry.turnId, `entry ${entry.seq} is outside its turn`).toBe(open)
      if (isEnd(entry)) open = null
    }
  }
  expect(open, 'the last turn has no end').toBeNull()
}

/** Byte for byte what is stored. */
export function expectSameEntries(read: LogEntry[], log: StoredEntry[]): void {
  expect(read).toEqual(log.map(({ seq, type, data }) => ({ seq, type, data })))
}

export function expectSameEvents(read: SessionEvent[], log: StoredEntry[]): void {
  expect(read.map(valueOfEvent)).toEqual(log.map(valueOfEntry))
}

/** Ends of the sent turns as the log has them: `done`, the code of the error, or `lost` for one that never began. */
export function expectTurns(sent: SentTurn[], log: StoredEntry[]): string[] {
  const begun = log.filter(({ type }) => type === 'turn')
  const ends = sent.map((turn) => {
    const mine = begun.filter(({ data }) => data.includes(turn.mark))
    expect(mine.length, `${turn.mark} is in the log ${mine.length} times`).toBeLessThanOrEqual(1)
    const [first] = mine
    if (first === undefined) {
      expect(turn.seen, `${turn.mark} was acknowledged and is not in the log`).toEqual([])
      expect(turn.wasDisturbed, `${turn.mark} was lost without a fault`).toBe(true)
      return 'lost'
    }
    return expectTurn(turn, log.slice(first.seq - 1), first.turnId)
  })
  expect(begun).toHaveLength(ends.filter((end) => end !== 'lost').length)
  return ends
}

/** `log` begins with the turn. */
function expectTurn(
  { mark, answer, seen, wasDisturbed }: SentTurn,
  log: StoredEntry[],
  turnId: string | null,
) {
  const complete = seen.filter(({ id }) => isEntryId(id))
  expectSameEvents(complete, log.slice(0, complete.length))
  const mine = log.filter((entry) => entry.turnId === turnId)
  const text = mine
    .filter(({ type }) => type === 'message')
    .map(({ data }) => JSON.parse(data))
    .filter(({ type }) => type === 'assistant')
    .map(textOf)
    .join('')
  const end = mine.at(-1)
  if (end?.type === 'done') {
    expect(text === answer, `${mark} is done with another answer: ${text.slice(0, 200)}`).toBe(true)
    return 'done'
  }
  const { code } = JSON.parse(end?.data ?? '{}') as { code: string }
  expect(wasDisturbed, `${mark} failed without a fault: ${end?.data}`).toBe(true)
  expect(answer.startsWith(text), `${mark} broke off with another text: ${text.slice(0, 200)}`).toBe(true)
  return code
}
