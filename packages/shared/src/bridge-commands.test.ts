import { describe, expect, test } from 'vitest'
import { decodeCommand } from './bridge-commands.ts'
import { encodeLine } from './bridge-events.ts'
import { ProtocolError } from './line-splitter.ts'

describe('commands', () => {
  test('survive the way to the bridge', () => {
    const command = { cmd: 'query', id: '3', content: 'hi\nthere', options: { model: 'm' } } as const
    expect(decodeCommand(encodeLine(command).trimEnd())).toEqual(command)
  })

  test('preload needs nothing but an id', () => {
    expect(decodeCommand('{"cmd":"preload","id":"1"}')).toEqual({ cmd: 'preload', id: '1' })
    expect(() => decodeCommand('{"cmd":"preload"}')).toThrow(ProtocolError)
  })

  const REQUEST = { kind: 'handler', code: 'x', event: '{"a":1}', env: { A: 'b' }, timeoutMs: 1 } as const
  const EXECUTE = {
    cmd: 'execute',
    id: '1',
    interpreter: 'i-1',
    request: REQUEST,
    maxOutputBytes: 1,
  } as const

  test.each([
    { cmd: 'terminal', id: '1', cols: 80, rows: 24, command: 'top' },
    { cmd: 'terminal_read', id: '1', terminal: 't' },
    { cmd: 'terminal_input', id: '1', terminal: 't', data: 'bHMK' },
    { cmd: 'terminal_resize', id: '1', terminal: 't', cols: 1, rows: 1000 },
    { cmd: 'terminal_close', id: '1', terminal: 't' },
    { cmd: 'start', id: '1', language: 'shell' },
    { cmd: 'start', id: '1', language: 'python', env: { A: 'b' } },
    EXECUTE,
    { cmd: 'cancel', id: '1', interpreter: 'i-1', how: 'interrupt' },
    { cmd: 'stop', id: '1', interpreter: 'i-1' },
    { cmd: 'ports', id: '1' },
    { cmd: 'tunnel', id: '1', port: 65_535, token: '0f'.repeat(32) },
  ] as const)('$cmd is taken as it was sent', (command) => {
    expect(decodeCommand(encodeLine(command).trimEnd())).toEqual(command)
  })

  test.each([
    ['a terminal without a size', { cmd: 'terminal', cols: 80 }],
    ['a terminal with too many columns', { cmd: 'terminal', cols: 1001, rows: 24 }],
    ['a terminal with half a row', { cmd: 'terminal_resize', terminal: 't', cols: 80, rows: 0.5 }],
    ['input that is no text', { cmd: 'terminal_input', terminal: 't', data: 1 }],
    ['a terminal for a path', { cmd: 'terminal_close', terminal: '../t' }],
    ['an unknown language', { cmd: 'start', language: 'cobol' }],
    ['variables that are no text', { cmd: 'start', language: 'shell', env: { A: 1 } }],
    ['no interpreter', { ...EXECUTE, interpreter: undefined }],
    ['an interpreter for a path', { ...EXECUTE, interpreter: '../x' }],
    ['no request', { ...EXECUTE, request: undefined }],
    ['an unknown kind', { ...EXECUTE, request: { ...REQUEST, kind: 'x' } }],
    ['code that is no text', { ...EXECUTE, request: { ...REQUEST, code: 1 } }],
    ['an event that is no text', { ...EXECUTE, request: { ...REQUEST, event: {} } }],
    ['no time', { ...EXECUTE, request: { ...REQUEST, timeoutMs: undefined } }],
    ['no limit of output', { ...EXECUTE, maxOutputBytes: -1 }],
    ['another way to cancel', { cmd: 'cancel', interpreter: 'i', how: 'ask' }],
    ['nothing to stop', { cmd: 'stop' }],
    ['no port', { cmd: 'tunnel', port: 0, token: '0f'.repeat(32) }],
    ['a port that is text', { cmd: 'tunnel', port: '80', token: '0f'.repeat(32) }],
    ['a token too short', { cmd: 'tunnel', port: 80, token: '0f' }],
    ['a token of two lines', { cmd: 'tunnel', port: 80, token: `${'0f'.repeat(32)}\n` }],
  ])('%s is a protocol error', (_, command) => {
    expect(() => decodeCommand(JSON.stringify({ ...command, id: '1' }))).toThrow(ProtocolError)
  })

  test.each(['{"cmd":"fly","id":"1"}', '{"cmd":"ping"}', '"ping"'])('%s is a protocol error', (line) => {
    expect(() => decodeCommand(line)).toThrow(ProtocolError)
  })
})
