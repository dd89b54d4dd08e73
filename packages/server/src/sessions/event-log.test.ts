import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { EventLogs, type Frame } from './event-log.ts'
import {
  type EventPage,
  findOpenTurn,
  findTurnStart,
  insertEvents,
  listEvents,
  listTurnStarts,
} from './event-queries.ts'
import { type Fence, fenceOf, insertSession, reclaimSessions } from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'

for (const database of testDatabases) {
  describe(`the event log in ${database.kind}`, () => {
    let test_: TestDb
    let fence: Fence
    beforeEach(async () => {
      test_ = await database.open()
      fence = await newSession()
    })
    afterEach(() => test_.close())

    async function newSession(): Promise<Fence> {
      const row = sessionRow({ status: 'active' })
      await insertSession(test_.db, row)
      return fenceOf(row)
    }
    const stored = (after = 0) => listEvents(test_.db, 'default', fence.sessionId, { after, limit: 10_000 })
    const openLog = () => new EventLogs(test_.db).get(fence)

    /** Reads until a `done` frame. */
    async function readAll(
      log: Awaited<ReturnType<typeof openLog>>,
      after = { seq: 0, sub: 0 },
    ): Promise<Frame[]> {
      const frames: Frame[] = []
      for await (const batch of log.read(after, AbortSignal.timeout(10_000))) {
        frames.push(...batch)
        if (batch.some(({ type }) => type === 'done')) break
      }
      return frames
    }

    test('numbers entries from one without a gap and keeps their text', async () => {
      const log = await openLog()
      const texts = Array.from({ length: 1200 }, (_, index) => JSON.stringify({ index, text: 'é\u2028"' }))
      await Promise.all(texts.map((text) => log.append('message', null, text)))
      const entries = await stored()
      expect(entries.map(({ seq }) => seq)).toEqual(texts.map((_, index) => index + 1))
      expect(entries.map(({ data }) => data)).toEqual(texts)
    })

    test('goes on after the last entry when it is opened again', async () => {
      await (await openLog()).append('turn', 't', '{}')
      expect(await (await openLog()).append('done', 't', '{}')).toBe(2)
    })

    test('append tells the seq of its own entry, whoever else appends meanwhile', async () => {
      const log = await openLog()
      const seqs = await Promise.all(
        Array.from({ length: 50 }, (_, index) => log.append('log', null, `"${index}"`)),
      )
      expect(seqs).toEqual(Array.from({ length: 50 }, (_, index) => index + 1))
    })

    test('nothing can be read before it is stored', async () => {
      const log = await openLog()
      const seen: number[] = []
      const reading = (async () => {
        for await (const batch of log.read({ seq: 0, sub: 0 }, AbortSignal.timeout(10_000))) {
          const durable = (await stored()).at(-1)?.seq ?? 0
          for (const frame of batch) expect(frame.seq).toBeLessThanOrEqual(durable)
          seen.push(...batch.map(({ seq }) => seq))
          if (seen.length >= 100) return
        }
      })()
      for (let index = 0; index < 100; index++) await log.write('message', null, `{"n":${index}}`)
      await reading
      expect(seen).toEqual(Array.from({ length: 100 }, (_, index) => index + 1))
    })

    test('previews keep their place between entries, take no seq and are not stored', async () => {
      const log = await openLog()
      await log.write('turn', 't', '{}')
      void log.preview('t', '{"p":1}')
      void log.preview('t', '{"p":2}')
      await log.write('message', 't', '{"m":1}')
      void log.preview('t', '{"p":3}')
      await log.append('done', 't', '{}')
      const ids = (await readAll(log)).map(({ text }) => /^id: (\S+)/.exec(text)?.[1])
      expect(ids).toEqual(['1', '1.1', '1.2', '2', '2.1', '3'])
      expect((await stored()).map(({ seq }) => seq)).toEqual([1, 2, 3])
    })

    test('a reader may start anywhere, also after a preview', async () => {
      const log = await openLog()
      await log.write('turn', 't', '{}')
      void log.preview('t', '{"p":1}')
      void log.preview('t', '{"p":2}')
      await log.append('done', 't', '{}')
      expect((await readAll(log, { seq: 1, sub: 1 })).map(({ seq, sub }) => [seq, sub])).toEqual([
        [1, 2],
        [2, 0],
      ])
    })

    test('what memory no longer holds comes from the database, each entry once', async () => {
      const log = await openLog()
      const large = JSON.stringify('x'.repeat(50_000))
      for (let index = 0; index < 60; index++) await log.write('message', null, large)
      await log.append('done', 't', '{}')
      expect((await readAll(log)).map(({ seq }) => seq)).toEqual(
        Array.from({ length: 61 }, (_, index) => index + 1),
      )
    })

    test('readers of a session share one log, however they came to it', async () => {
      const logs = new EventLogs(test_.db)
      const [a, b] = await Promise.all([logs.get(fence), logs.get(fence)])
      expect(a).toBe(b)
      const reading = readAll(a)
      await b.append('done', 't', '{}')
      expect(await reading).toHaveLength(1)
    })

    test('a reader stops when it is told to', async () => {
      const stop = new AbortController()
      const reading = (async () => {
        for await (const _ of (await openLog()).read({ seq: 0, sub: 0 }, stop.signal));
      })()
      stop.abort()
      await reading
    })

    test('a host that lost the session cannot append, and says so to everyone who waits', async () => {
      const log = await openLog()
      await reclaimSessions(test_.db, 'host-a')
      const [first, second] = await Promise.allSettled([
        log.append('turn', 't', '{}'),
        log.append('done', 't', '{}'),
      ])
      expect(first).toMatchObject({ status: 'rejected', reason: { code: 'session_conflict' } })
      expect(second).toMatchObject({ status: 'rejected' })
      expect(log.hasFailed).toBe(true)
      await expect(log.append('turn', 't', '{}')).rejects.toMatchObject({ code: 'session_conflict' })
      expect(await stored()).toEqual([])
    })

    test('a batch is stored whole or not at all', async () => {
      const entry = { type: 'log' as const, turnId: null, data: '{}' }
      const batch = { createdAt: 1, entries: [entry, entry] }
      const end = await insertEvents(test_.db, fence, { ...batch, end: { seq: 1, totalChars: 0 } })
      expect(end).toEqual({ seq: 3, totalChars: 4 })
      const clash = insertEvents(test_.db, fence, { ...batch, end: { seq: 0, totalChars: 0 } })
      await expect(clash).rejects.toThrow()
      expect((await stored()).map(({ seq }) => seq)).toEqual([2, 3])
    })

    test('knows how much it holds, also when it is opened again', async () => {
      const log = await openLog()
      await Promise.all([log.append('message', null, '{"a":1}'), log.append('message', null, '{}')])
      expect(log.totalChars).toBe(9)
      expect((await openLog()).totalChars).toBe(9)
    })

    test('a page is bounded in size and still brings everything, one large entry at a time', async () => {
      const log = await openLog()
      const large = JSON.stringify('x'.repeat(800_000))
      for (let index = 0; index < 4; index++) await log.append('message', null, large)
      const sizes: number[] = []
      for (let after = 0; after < 4; after += sizes.at(-1) ?? 0) {
        const page = await listEvents(test_.db, 'default', fence.sessionId, { after, limit: 1000 })
        sizes.push(page.length)
        expect(page[0]?.seq).toBe(after + 1)
      }
      expect(sizes).toEqual([2, 2])
    })

    test('a page of some types, or of one turn, leaves the rest out', async () => {
      const log = await openLog()
      for (const turnId of ['a', 'b']) {
        await log.append('turn', turnId, '{}')
        await log.append('message', turnId, '{}')
        await log.append('done', turnId, '{}')
      }
      const seqs = async (page: Omit<EventPage, 'after' | 'limit'>) =>
        (await listEvents(test_.db, 'default', fence.sessionId, { after: 1, limit: 10, ...page })).map(
          ({ seq }) => seq,
        )
      expect(await seqs({ types: ['turn', 'done'] })).toEqual([3, 4, 6])
      expect(await seqs({ turnId: 'b' })).toEqual([4, 5, 6])
      expect(await findTurnStart(test_.db, 'default', fence.sessionId, 'b')).toBe(4)
      expect(await findTurnStart(test_.db, 'other', fence.sessionId, 'b')).toBeUndefined()
      const starts = (after: number, upTo: number, tenantId = 'default') =>
        listTurnStarts(test_.db, tenantId, fence.sessionId, { after, upTo })
      expect(await starts(0, 4)).toEqual([
        { turnId: 'a', seq: 1 },
        { turnId: 'b', seq: 4 },
      ])
      expect([await starts(1, 3), await starts(4, 6), await starts(0, 6, 'other')]).toEqual([[], [], []])
    })

    test('another tenant reads nothing of it', async () => {
      await (await openLog()).append('turn', 't', '{}')
      expect(await listEvents(test_.db, 'other', fence.sessionId, { after: 0, limit: 10 })).toEqual([])
      expect(await findOpenTurn(test_.db, 'other', fence.sessionId)).toBeUndefined()
    })

    test('an open turn is one that neither is done nor failed', async () => {
      const log = await openLog()
      const openTurn = () => findOpenTurn(test_.db, 'default', fence.sessionId)
      expect(await openTurn()).toBeUndefined()
      await log.append('turn', 'a', '{}')
      await log.append('message', 'a', '{}')
      expect(await openTurn()).toBe('a')
      await log.append('error', 'a', '{}')
      expect(await openTurn()).toBeUndefined()
      await log.append('turn', 'b', '{}')
      expect(await openTurn()).toBe('b')
      await log.append('done', 'b', '{}')
      await log.append('error', null, '{}')
      expect(await openTurn()).toBeUndefined()
    })
  })
}
