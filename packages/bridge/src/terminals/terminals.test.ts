import { mkdtemp, rm, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MAX_TERMINAL_BYTES, MAX_TERMINALS } from '@ash-ai/shared'
import { expect, onTestFinished, test } from 'vitest'
import { readProcess } from '../execute/process-table.ts'
import { Terminals } from './terminals.ts'

const MODULE = createRequire(import.meta.url).resolve(`@lydell/node-pty-linux-${process.arch}/pty.node`)
const ENV = { PATH: '/usr/bin:/bin', HOME: '/nonexistent' }
const base64 = (text: string) => Buffer.from(text).toString('base64')

async function makeTerminals(modulePath = MODULE) {
  const dir = await mkdtemp(join(tmpdir(), 'ash-terminals-'))
  const terminals = new Terminals(dir, modulePath)
  onTestFinished(async () => {
    await terminals.closeAll()
    await rm(dir, { recursive: true, force: true })
  })
  const start = (command?: string, size = { cols: 80, rows: 24 }) =>
    terminals.start({ cmd: 'terminal', id: '1', ...size, ...(command !== undefined && { command }) }, ENV)
  /** Everything up to the end, or until the text is there. */
  const readUntil = async (terminal: string, text?: string) => {
    let seen = ''
    for (;;) {
      const read = await terminals.read(terminal)
      if ('exit' in read) return { seen, exit: read.exit }
      seen += Buffer.from(read.data, 'base64').toString()
      if (text !== undefined && seen.includes(text)) return { seen }
    }
  }
  return { terminals, start, readUntil, dir }
}

const isAlive = (pid: number) => readProcess(pid) !== undefined

test('a program sees a terminal of the size asked for, and its end comes after its last output', async () => {
  const { start, readUntil, dir } = await makeTerminals()
  const { terminal } = start('tty && stty size && pwd && echo "$TERM" && exit 3', { cols: 101, rows: 33 })
  const { seen, exit } = await readUntil(terminal)
  expect(seen).toMatch(/^\/dev\/pts\/\d+\r\n33 101\r\n/)
  expect(seen).toContain(`${dir}\r\nxterm-256color\r\n`)
  expect(exit).toEqual({ code: 3, signal: null })
})

test('an interactive shell takes input, and Ctrl-C reaches what runs in it', async () => {
  const { terminals, start, readUntil } = await makeTerminals()
  const { terminal } = start()
  await terminals.write(terminal, base64("sh -c 'echo a$((1+1))b; exec sleep 1000'\r"))
  await readUntil(terminal, 'a2b')
  await terminals.write(terminal, base64('\x03'))
  await terminals.write(terminal, base64('echo code=$?\r'))
  await readUntil(terminal, 'code=130')
})

test('a new size is told to the program', async () => {
  const { terminals, start, readUntil } = await makeTerminals()
  const { terminal } = start('trap "stty size" WINCH; echo begun; while :; do sleep 0.05; done')
  await readUntil(terminal, 'begun')
  terminals.resize(terminal, { cols: 120, rows: 40 })
  await readUntil(terminal, '40 120')
})

test('a program whose output nobody reads waits, and goes on when it is read', async () => {
  const { start, readUntil, dir } = await makeTerminals()
  const [lines, progress] = [2_000, join(dir, 'progress')]
  const line = 'x'.repeat(1_000)
  const { terminal } = start(`for i in $(seq ${lines}); do echo ${line}; printf . >> ${progress}; done`)
  let last = -1
  const isStill = async () => {
    const before = last
    last = (await stat(progress).catch(() => ({ size: -1 }))).size
    return last > 0 && last === before
  }
  await expect.poll(isStill, { interval: 250, timeout: 10_000 }).toBe(true)
  expect(last * line.length).toBeLessThan(4 * MAX_TERMINAL_BYTES)
  const { seen, exit } = await readUntil(terminal)
  expect(exit).toEqual({ code: 0, signal: null })
  expect(seen).toBe(`${line}\r\n`.repeat(lines))
})

test('more input than a terminal holds is taken as it is read', async () => {
  const { start, readUntil, terminals } = await makeTerminals()
  const { terminal } = start('stty raw -echo; echo begun; head -c 300000 | wc -c')
  await readUntil(terminal, 'begun')
  const piece = base64('y'.repeat(30_000))
  const writing = Promise.all(Array.from({ length: 10 }, () => terminals.write(terminal, piece)))
  const { seen } = await readUntil(terminal)
  await writing
  expect(seen).toContain('300000')
})

test('closing takes everything that was started in it along', async () => {
  const { start, readUntil, terminals } = await makeTerminals()
  const { terminal, pid } = start()
  await terminals.write(terminal, base64('setsid sleep 1000 & echo pid=$!.\r'))
  const { seen } = await readUntil(terminal, 'pid=')
  const more = /pid=\d+\./.test(seen) ? seen : seen + (await readUntil(terminal, '.')).seen
  const child = Number(/pid=(\d+)/.exec(more)?.[1])
  await terminals.close(terminal)
  expect([pid, child].filter(isAlive)).toEqual([])
  await expect(terminals.read(terminal)).rejects.toMatchObject({ code: 'terminal_not_found' })
})

test('a program that ends takes what it left in the background along', async () => {
  const { start, readUntil } = await makeTerminals()
  const { terminal } = start('sleep 1000 & echo pid=$!; exit 0')
  const { seen, exit } = await readUntil(terminal)
  expect(exit).toEqual({ code: 0, signal: null })
  expect(isAlive(Number(/pid=(\d+)/.exec(seen)?.[1]))).toBe(false)
})

test('a program killed by a signal says so', async () => {
  const { start, readUntil } = await makeTerminals()
  const { terminal } = start('kill -KILL $$')
  expect((await readUntil(terminal)).exit).toEqual({ code: null, signal: 9 })
})

test('there are only so many at once', async () => {
  const { start, terminals } = await makeTerminals()
  const [first] = Array.from({ length: MAX_TERMINALS }, () => start('sleep 1000'))
  expect(() => start('true')).toThrow(expect.objectContaining({ code: 'too_many_terminals' }))
  await terminals.close(first?.terminal ?? '')
  expect(start('true').terminal).toBeTruthy()
})

test('without the native module there are no terminals, and it says so', async () => {
  const { start } = await makeTerminals('/nonexistent/pty.node')
  expect(() => start('true')).toThrow(expect.objectContaining({ code: 'terminals_unavailable' }))
})
