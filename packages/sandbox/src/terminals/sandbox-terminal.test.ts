import { createInterface } from 'node:readline'
import { AshError, type BridgeCommand, encodeLine, MAX_TERMINAL_BYTES } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import type { Enclosure } from '../limits/enclosure.ts'
import { connectBridge } from '../testing/bridge-pair.ts'
import { SandboxTerminal } from './sandbox-terminal.ts'

type Answers = Partial<Record<BridgeCommand['cmd'], unknown>>

/** A terminal of a bridge that answers as the test likes. */
async function openAt(
  answers: Answers,
  enclose: () => Promise<Enclosure | undefined> = async () => undefined,
) {
  const { client, bridge } = await connectBridge()
  const asked: BridgeCommand[] = []
  createInterface({ input: bridge }).on('line', (line) => {
    const command = JSON.parse(line) as BridgeCommand
    asked.push(command)
    const data = { terminal: { terminal: 't', pid: 5 }, ...answers }[command.cmd as string] ?? {}
    bridge.write(encodeLine({ ev: 'result', id: command.id, data }))
  })
  const opened = SandboxTerminal.open({ bridge: client, enclose }, { cols: 80, rows: 24 })
  return { opened, asked, client }
}

test('output comes as bytes, and after it how the program ended', async () => {
  const data = Buffer.from([0, 255, 10]).toString('base64')
  const { opened } = await openAt({ terminal_read: { data } })
  expect(await (await opened).read()).toEqual({ data: Buffer.from([0, 255, 10]) })
  const ended = await openAt({ terminal_read: { exit: { code: 3, signal: null, more: 1 } } })
  expect(await (await ended.opened).read()).toEqual({ exit: { code: 3, signal: null } })
})

test('input goes in pieces, each after the other was taken', async () => {
  const { opened, asked } = await openAt({})
  const typed = Buffer.alloc(2 * MAX_TERMINAL_BYTES + 10, 'k')
  await (await opened).write(typed)
  const pieces = asked.flatMap((command) => (command.cmd === 'terminal_input' ? [command.data] : []))
  expect(pieces).toHaveLength(3)
  expect(Buffer.concat(pieces.map((piece) => Buffer.from(piece, 'base64')))).toEqual(typed)
})

test.each([
  ['nothing', {}],
  ['no bytes', { data: '' }],
  ['too many bytes', { data: 'A'.repeat(2 * MAX_TERMINAL_BYTES) }],
  ['bytes that are none', { data: 5 }],
  ['an end without a code', { exit: {} }],
  ['an odd code', { exit: { code: 1e9, signal: null } }],
])('a bridge that answers with %s is not believed', async (_, terminal_read) => {
  const { opened, client } = await openAt({ terminal_read })
  await expect((await opened).read()).rejects.toMatchObject({ code: 'bridge_protocol_error' })
  expect(client.isClosed).toBe(true)
})

test.each([
  ['no id', { pid: 5 }],
  ['an id that is none', { terminal: '../x', pid: 5 }],
  ['no process', { terminal: 't' }],
  ['the first process', { terminal: 't', pid: 1 }],
])('a terminal with %s is not believed', async (_, terminal) => {
  const { opened, client } = await openAt({ terminal })
  await expect(opened).rejects.toMatchObject({ code: 'bridge_protocol_error' })
  expect(client.isClosed).toBe(true)
})

test('closing kills what holds it, once', async () => {
  const calls: string[] = []
  const enclosure: Enclosure = {
    cpuMs: () => 0,
    kill: async () => void calls.push('kill'),
    remove: async () => void calls.push('remove'),
  }
  const { opened, asked } = await openAt({}, async () => enclosure)
  const terminal = await opened
  await Promise.all([terminal.close(), terminal.close()])
  expect(calls).toEqual(['kill', 'remove'])
  expect(asked.filter(({ cmd }) => cmd === 'terminal_close')).toHaveLength(1)
})

test('one that cannot be held is closed, unless it has ended already', async () => {
  const failing = await openAt({}, async () => {
    throw new Error('no such group')
  })
  await expect(failing.opened).rejects.toThrow('no such group')
  expect(failing.asked.map(({ cmd }) => cmd)).toEqual(['terminal', 'terminal_close'])
  const gone = await openAt({ terminal_read: { exit: { code: 0, signal: null } } }, async () => {
    throw new AshError('interpreter_gone', 'There is no process 5 in the sandbox')
  })
  expect(await (await gone.opened).read()).toEqual({ exit: { code: 0, signal: null } })
})
