import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { StatementCache } from './sqlite-statement.ts'
import { SqliteError, SqliteWriter } from './sqlite-writer-client.ts'
import { TurnQueue } from './turn-queue.ts'

let dir: string
let path: string
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ash-writer-'))
  path = join(dir, 'test.db')
})
afterEach(() => rm(dir, { recursive: true, force: true }))

const open = (busyTimeoutMs = 1000) => SqliteWriter.open({ path, sync: 'normal', busyTimeoutMs })

describe('the writer thread', () => {
  test('answers in the order it was asked', async () => {
    const writer = await open()
    const work = [
      writer.execute('create table t (n integer)', []),
      ...Array.from({ length: 20 }, (_, n) =>
        writer.execute('insert into t values (?) returning rowid', [n]),
      ),
    ]
    const [, ...inserted] = await Promise.all(work)
    expect(inserted.map(({ rows }) => rows[0]?.rowid)).toEqual(Array.from({ length: 20 }, (_, n) => n + 1))
    await writer.close()
  })

  test('keeps the code and message of an error', async () => {
    const writer = await open()
    await writer.execute('create table t (n integer unique)', [])
    await writer.execute('insert into t values (1)', [])
    const error: unknown = await writer
      .execute('insert into t values (1)', [])
      .catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(SqliteError)
    expect(error).toMatchObject({
      code: 'ERR_SQLITE_ERROR',
      errcode: 2067,
      message: expect.stringContaining('t.n'),
    })
    await expect(writer.execute('not sql', [])).rejects.toThrow(/syntax error/)
    await expect(writer.execute('insert into t values (?)', [() => 1])).rejects.toThrow(/clone/)
    expect((await writer.execute('insert into t values (2)', [])).changes).toBe(1)
    await writer.close()
  })

  test('moves what was written into the database file once nobody writes', async () => {
    const writer = await open()
    await writer.execute('create table t (text text)', [])
    for (let n = 0; n < 5; n++) await writer.execute('insert into t values (?)', ['x'.repeat(100_000)])
    await expect.poll(async () => (await stat(path)).size, { timeout: 5_000 }).toBeGreaterThan(500_000)
    // Also with a transaction open over a rest.
    await writer.execute('begin immediate', [])
    await writer.execute('insert into t values (?)', ['y'.repeat(100_000)])
    await sleep(300) // A rest is a length of time, and no event tells of its end.
    await writer.execute('commit', [])
    expect((await writer.execute('select count(*) as n from t', [])).rows).toEqual([{ n: 6 }])
    await writer.close()
  })

  test('what belongs into a transaction that did not begin is refused, not stored by itself', async () => {
    const writer = await open(50)
    await writer.execute('create table t (n integer)', [])
    const other = new DatabaseSync(path)
    other.exec('begin immediate')
    const both = [
      writer.execute('insert into t values (1)', [], 'begins'),
      // Posted before anybody knows of the lock, and served after it is gone.
      writer.execute('insert into t values (2)', [], 'goes on'),
    ]
    await expect(both[0]).rejects.toThrow(/locked/)
    other.exec('rollback')
    other.close()
    await expect(both[1]).rejects.toThrow(/did not begin/)
    expect((await writer.execute('select count(*) as n from t', [])).rows).toEqual([{ n: 0 }])
    await writer.execute('insert into t values (3)', [], 'begins')
    await writer.execute('insert into t values (4)', [], 'goes on')
    await writer.execute('commit', [])
    expect((await writer.execute('select count(*) as n from t', [])).rows).toEqual([{ n: 2 }])
    await writer.close()
  })

  test('a lock held by another process does not stop the event loop', async () => {
    const writer = await open(300)
    await writer.execute('create table t (n integer)', [])
    const other = new DatabaseSync(path)
    other.exec('begin immediate')
    let ticks = 0
    const ticking = setInterval(() => ticks++, 10)
    await expect(writer.execute('insert into t values (1)', [])).rejects.toThrow(/locked/)
    clearInterval(ticking)
    expect(ticks).toBeGreaterThan(10)
    other.exec('rollback')
    other.close()
    await writer.execute('insert into t values (1)', [])
    await writer.close()
  })

  test('its death fails what is pending and what comes later, and says so', async () => {
    const writer = await open()
    await writer.execute('create table t (n integer)', [])
    const slow = writer.execute(
      'with recursive c(n) as (select 1 union all select n + 1 from c where n < 1000000) select max(n) from c',
      [],
    )
    const outcome = expect(slow).rejects.toThrow('The database writer has stopped')
    await writer.terminate()
    await outcome
    await expect(writer.execute('insert into t values (1)', [])).rejects.toThrow(
      'The database writer has stopped',
    )
    await writer.close()
  })

  test('a file that is no database fails the opening', async () => {
    path = join(dir, 'missing', 'test.db')
    await expect(open()).rejects.toThrow(/The database writer failed: unable to open database file/)
  })

  test('closing finishes what was posted before', async () => {
    const writer = await open()
    await writer.execute('create table t (n integer)', [])
    const inserts = Array.from({ length: 100 }, (_, n) => writer.execute('insert into t values (?)', [n]))
    await writer.close()
    await Promise.all(inserts)
    const db = new DatabaseSync(path)
    expect(db.prepare('select count(*) as n from t').get()).toMatchObject({ n: 100 })
    db.close()
  })
})

test('the statement cache stays bounded and right', () => {
  const db = new DatabaseSync(':memory:')
  const statements = new StatementCache(db)
  for (let n = 0; n < 1000; n++) {
    expect(statements.run(`select ${n} as n, ? as p`, ['x']).rows).toEqual([{ n, p: 'x' }])
    expect(statements.run('select 1 as one', []).rows).toEqual([{ one: 1 }])
  }
  expect(statements.size).toBe(200)
  db.close()
})

test('a turn queue lets one in at a time, in order', async () => {
  const queue = new TurnQueue()
  const seen: string[] = []
  const visit = async (name: string) => {
    const endTurn = await queue.take()
    seen.push(`${name} in`)
    await new Promise(setImmediate)
    seen.push(`${name} out`)
    endTurn()
  }
  await Promise.all([visit('a'), visit('b'), visit('c')])
  expect(seen).toEqual(['a in', 'a out', 'b in', 'b out', 'c in', 'c out'])
  expect(queue.isFree).toBe(true)
})
