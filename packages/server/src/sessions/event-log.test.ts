import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { EventLogs, type Frame } from './event-log.ts'
import { findOpenTurn, insertEvents, listEvents } from './event-queries.ts'
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
      log.preview('t', '{"p":1}')
      log.preview('t', '{"p":2}')
      await log.write('message', 't', '{"m":1}')
      log.preview('t', '{"p":3}')
      await log.append('done', 't', '{}')
      const ids = (await readAll(log)).map(({ text }) => /^id: (\S+)/.exec(text)?.[1])
      expect(ids).toEqual(['1', '1.1', '1.2', '2', '2.1', '3'])
      expect((await stored()).map(({ seq }) => seq)).toEqual([1, 2, 3])
    })

    test('a reader may start anywhere, also after a preview', async () => {
      const log = await openLog()
      await log.write('turn', 't', '{}')
      log.preview('t', '{"p":1}')
      log.preview('t', '{"p":2}')
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
      const entry = { type: 'log' as const, turnId: null, data: '{}', createdAt: 1 }
      await insertEvents(test_.db, fence, [{ ...entry, seq: 2 }])
      await expect(
        insertEvents(test_.db, fence, [
          { ...entry, seq: 1 },
          { ...entry, seq: 2 },
        ]),
      ).rejects.toThrow()
      expect((await stored()).map(({ seq }) => seq)).toEqual([2])
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
