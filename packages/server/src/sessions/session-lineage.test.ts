import type { EventType } from '@ash-ai/shared'
import type { KyselyPlugin } from 'kysely'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { dataOf, EventLogs } from './event-log.ts'
import { type EventPage, findLogEnd, findOpenTurn, findTurnStart } from './event-queries.ts'
import { findLineage, hasLogEvents, listLogEvents } from './session-lineage.ts'
import { fenceOf, getSession, insertSession, type SessionRow } from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'

interface ModelEntry {
  seq: number
  type: EventType
  turnId: string | null
  data: string
}

/** A session, and what its log has to be. */
interface Model {
  row: SessionRow
  entries: ModelEntry[]
}

const TYPES = ['turn', 'message', 'done', 'log'] as const

for (const database of testDatabases) {
  describe(`the log of a fork in ${database.kind}`, () => {
    let test_: TestDb
    let logs: EventLogs
    beforeEach(async () => {
      test_ = await database.open()
      logs = new EventLogs(test_.db)
    })
    afterEach(() => test_.close())

    async function create(change: Partial<SessionRow> = {}): Promise<Model> {
      const row = sessionRow({ status: 'paused', ...change })
      await insertSession(test_.db, row)
      return { row, entries: [] }
    }

    async function fork({ row, entries }: Model, seq: number, change: Partial<SessionRow> = {}) {
      const child = await create({ parent_session_id: row.id, fork_seq: seq, ...change })
      return { ...child, entries: entries.slice(0, seq) }
    }

    async function append(model: Model, type: EventType, turnId: string | null, data = '{}'): Promise<void> {
      const log = await logs.get(fenceOf(model.row))
      const seq = await log.append(type, turnId, data)
      model.entries.push({ seq, type, turnId, data })
    }

    const lineageOf = async ({ row }: Model, after: number) => {
      const { fork_seq } = await getSession(test_.db, row.tenant_id, row.id)
      const log = { tenantId: row.tenant_id, sessionId: row.id, forkSeq: fork_seq ?? 0 }
      return findLineage(test_.db, log, after)
    }

    /** As a client pages: each page begins where the one before ended, while there is said to be more. */
    async function readPages(model: Model, page: EventPage): Promise<ModelEntry[][]> {
      const { tenant_id } = model.row
      const pages: ModelEntry[][] = []
      for (let after: number | undefined = page.after; after !== undefined; ) {
        const lineage = await lineageOf(model, after)
        const entries = await listLogEvents(test_.db, tenant_id, lineage, { ...page, after })
        pages.push(entries.map(({ createdAt: _, ...entry }) => entry))
        after = entries.at(-1)?.seq
        if (after === undefined) break
        if (!(await hasLogEvents(test_.db, tenant_id, lineage, { ...page, after }))) break
      }
      return pages
    }
    const seqsOf = (pages: ModelEntry[][]) => pages.map((page) => page.map(({ seq }) => seq))

    async function replay({ row }: Model, after: number, count: number): Promise<ModelEntry[]> {
      const log = await new EventLogs(test_.db).get(fenceOf(row)) // Has nothing in memory.
      const found: ModelEntry[] = []
      for await (const frames of log.read({ seq: after, sub: 0 }, AbortSignal.timeout(10_000))) {
        for (const frame of frames) {
          const { seq, type, turnId } = frame
          found.push({ seq, type, turnId, data: dataOf(frame) })
        }
        if (found.length >= count) break
      }
      return found
    }

    /** Sessions that write and fork in any order, of which some have ended. */
    async function grow(random: () => number): Promise<Model[]> {
      const models = [await create(), await create()]
      for (let step = 0; step < 100; step++) {
        const model = pick(random, models)
        if (random() < 0.3) {
          const seq = Math.floor(random() * (model.entries.length + 1))
          models.push(await fork(model, seq, random() < 0.3 ? { status: 'ended' } : {}))
        } else {
          const turnId = random() < 0.2 ? null : `turn-${Math.floor(random() * 4)}`
          await append(model, pick(random, TYPES), turnId, JSON.stringify({ step, of: model.row.id }))
        }
      }
      return models
    }

    test.each([1, 2, 3])('is one log, however sessions fork and write: %i', async (seed) => {
      const random = seededRandom(seed)
      const filters: Partial<EventPage>[] = [{}, { types: ['turn', 'done'] }, { turnId: 'turn-1' }]
      for (const model of await grow(random)) {
        const { entries } = model
        expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, index) => index + 1))
        for (const limit of [1, 2, 7]) {
          for (const filter of filters) {
            const after = Math.floor(random() * (entries.length + 2))
            const expected = entries.filter(({ seq }) => seq > after).filter(matches(filter))
            const pages = await readPages(model, { after, limit, ...filter })
            expect(pages.flat()).toEqual(expected)
            expect(seqsOf(pages)).toEqual(seqsOf(chunks(expected, limit)))
          }
        }
        for (let after = 0; after < entries.length; after++) {
          expect(await replay(model, after, entries.length - after)).toEqual(entries.slice(after))
        }
      }
    })

    test('is replayed, then followed live, without what the parent goes on to write', async () => {
      const parent = await create()
      for (let index = 0; index < 3; index++) await append(parent, 'log', null, `"parent ${index}"`)
      const child = await fork(parent, 2)
      const log = await logs.get(fenceOf(child.row))
      const seen: string[] = []
      const reading = (async () => {
        for await (const frames of log.read({ seq: 0, sub: 0 }, AbortSignal.timeout(10_000))) {
          seen.push(...frames.map((frame) => `${frame.seq} ${dataOf(frame)}`))
          if (seen.length >= 4) return
        }
      })()
      await expect.poll(() => seen.length).toBe(2)
      await append(parent, 'log', null, '"parent later"')
      await append(child, 'log', null, '"child 0"')
      await append(child, 'log', null, '"child 1"')
      await reading
      expect(seen).toEqual(['1 "parent 0"', '2 "parent 1"', '3 "child 0"', '4 "child 1"'])
    })

    test('ends where it was forked until it has entries of its own, and counts only those', async () => {
      const parent = await create()
      for (let index = 0; index < 3; index++) await append(parent, 'log', null, '"12345678"')
      const child = await fork(parent, 2)
      const end = () => findLogEnd(test_.db, 'default', child.row.id)
      expect(await end()).toEqual({ seq: 2, totalChars: 0, forkSeq: 2 })
      await append(child, 'log', null, '{}')
      expect(await end()).toEqual({ seq: 3, totalChars: 2, forkSeq: 2 })
      expect((await new EventLogs(test_.db).get(fenceOf(child.row))).totalChars).toBe(2)
      expect(await findLogEnd(test_.db, 'other', child.row.id)).toEqual({ seq: 0, totalChars: 0, forkSeq: 0 })
    })

    test('shows the turns of the parent, but the fork has not begun them', async () => {
      const parent = await create()
      await append(parent, 'turn', 'open')
      const child = await fork(parent, 1)
      expect(await findOpenTurn(test_.db, 'default', parent.row.id)).toBe('open')
      expect(await findOpenTurn(test_.db, 'default', child.row.id)).toBeUndefined()
      expect(await findTurnStart(test_.db, 'default', child.row.id, 'open')).toBeUndefined()
      expect(seqsOf(await readPages(child, { after: 0, limit: 10, turnId: 'open' }))).toEqual([[1]])
      await append(child, 'turn', 'own')
      expect(await findTurnStart(test_.db, 'default', child.row.id, 'own')).toBe(2)
    })

    test.each([1, 3])(
      'a page is bounded in size across forks too, each with %i large entries',
      async (each) => {
        const large = JSON.stringify('x'.repeat(800_000))
        let model = await create()
        while (model.entries.length < 6) {
          model = await fork(model, model.entries.length)
          for (let index = 0; index < each; index++) await append(model, 'message', null, large)
        }
        expect(seqsOf(await readPages(model, { after: 0, limit: 100 }))).toEqual([
          [1, 2],
          [3, 4],
          [5, 6],
        ])
      },
    )

    test('a page that ends early in the parent does not go on in the fork', async () => {
      const parent = await create()
      await append(parent, 'turn', 'a')
      await append(parent, 'message', 'a', JSON.stringify('x'.repeat(1_200_000)))
      await append(parent, 'turn', 'b')
      const child = await fork(parent, 3)
      await append(child, 'turn', 'c')
      const pages = await readPages(child, { after: 0, limit: 100, types: ['turn'] })
      expect(seqsOf(pages)).toEqual([[1], [3, 4]])
    })

    test('of a chain of forks is read as one page, also through those that wrote nothing', async () => {
      let model = await create()
      for (let depth = 0; depth < 100; depth++) {
        if (depth % 3 > 0) await append(model, 'log', null, `"${depth}"`)
        model = await fork(model, model.entries.length)
      }
      expect(await readPages(model, { after: 0, limit: 1000 })).toEqual([model.entries])
      expect(await lineageOf(model, 0)).toHaveLength(67)
      expect(await lineageOf(model, 60)).toHaveLength(7)
    })

    test('leaves out what belongs to another tenant', async () => {
      const foreign = await create({ tenant_id: 'other' })
      await append(foreign, 'log', null, '"secret"')
      const parent = await fork(foreign, 1, { tenant_id: 'default' })
      await append(parent, 'log', null, '"mine"')
      const child = await fork(parent, 2)
      await append(child, 'log', null, '"mine too"')
      for (const model of [parent, child]) {
        const own = model.entries.slice(1)
        expect((await readPages(model, { after: 0, limit: 10 })).flat()).toEqual(own)
        expect(await replay(model, 0, own.length)).toEqual(own)
      }
      const sources = (await lineageOf(child, 0)).map(({ sessionId }) => sessionId)
      expect(sources).toEqual([parent.row.id, child.row.id])
    })

    test('comes to an end where rows go round in a circle', async () => {
      const first = await create()
      await append(first, 'log', null, '"first"')
      await append(first, 'log', null, '"later"')
      const second = await fork(first, 1)
      await append(second, 'log', null, '"second"')
      await test_.db
        .updateTable('sessions')
        .set({ parent_session_id: second.row.id, fork_seq: 2 })
        .where('id', '=', first.row.id)
        .execute()
      expect(seqsOf(await readPages(second, { after: 0, limit: 10 }))).toEqual([[2]])
    })

    test('asks for ancestors only where an entry of theirs may be wanted', async () => {
      const parent = await create()
      for (let index = 0; index < 3; index++) await append(parent, 'log', null)
      const child = await fork(parent, 2)
      const { db, queries } = counting(test_)
      const find = async ({ row }: Model, after: number) => {
        const log = { tenantId: 'default', sessionId: row.id, forkSeq: row.fork_seq ?? 0 }
        const before = queries()
        const segments = (await findLineage(db, log, after)).map(({ fromSeq, toSeq }) => [fromSeq, toSeq])
        return { segments, queries: queries() - before }
      }
      const endless = Number.POSITIVE_INFINITY
      expect(await find(parent, 0)).toEqual({ segments: [[1, endless]], queries: 0 })
      expect(await find(child, 2)).toEqual({ segments: [[3, endless]], queries: 0 })
      expect(await find(child, 1)).toEqual({
        segments: [
          [1, 2],
          [3, endless],
        ],
        queries: 1,
      })
    })

    test('takes no more queries than before where a session is no fork', async () => {
      const model = await create()
      for (let index = 0; index < 3; index++) await append(model, 'log', null)
      const { db, queries } = counting(test_)
      const lineage = await lineageOf(model, 0)
      for (const page of [
        { after: 0, limit: 2 },
        { after: 0, limit: 9 },
      ]) {
        const before = queries()
        expect(await listLogEvents(db, 'default', lineage, page)).toHaveLength(Math.min(page.limit, 3))
        expect(queries() - before).toBe(2)
      }
    })
  })
}

const matches =
  ({ types, turnId }: Partial<EventPage>) =>
  (entry: ModelEntry) =>
    (types?.includes(entry.type) ?? true) && (turnId === undefined || entry.turnId === turnId)

/** One empty page where there is nothing. */
function chunks<Item>(items: Item[], size: number): Item[][] {
  const count = Math.max(1, Math.ceil(items.length / size))
  return Array.from({ length: count }, (_, index) => items.slice(index * size, (index + 1) * size))
}

function pick<Item>(random: () => number, items: readonly Item[]): Item {
  return items[Math.floor(random() * items.length)] as Item
}

/** The same numbers for the same seed, so that a failure can be seen again. */
function seededRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

function counting({ db }: TestDb) {
  let count = 0
  const plugin: KyselyPlugin = {
    transformQuery: ({ node }) => {
      count++
      return node
    },
    transformResult: async ({ result }) => result,
  }
  return { db: db.withPlugin(plugin), queries: () => count }
}
