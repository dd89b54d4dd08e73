import type { TerminalConnection, TerminalEnd } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { EscapeKeys } from '../escape-keys.ts'
import { CliError, EXIT } from '../failure.ts'
import { bold, dim } from '../output.ts'

const HELP = `
Type ~. at the beginning of a line to leave; the terminal goes on for five minutes, and --id comes back to it.
~~ sends one ~. Several people can look at one terminal and type into it.
Ends with the exit code of what ran in it, 128 and its number where a signal killed it.`

export function addTerminal(program: Command, run: Run): void {
  const terminal = addCommand(program, 'terminal <session>', "Open a terminal in the session's sandbox.", [
    'ash terminal $id',
    'ash terminal $id --command "top"',
    'ash terminal $id --id $terminal',
    'ash terminal $id --list',
  ])
  terminal
    .option('--command <line>', 'what runs in it; default an interactive shell')
    .option('--id <terminal>', 'come back to one that is open, or join somebody else in it')
    .option('--list', 'show the open terminals')
    .option('--close <terminal>', 'close one, with everything that runs in it')
    .addHelpText('after', HELP)
    .action(run(openTerminal))
}

interface Options {
  command?: string
  id?: string
  list?: boolean
  close?: string
}

async function openTerminal(context: Context, sessionId: string, options: Options): Promise<void> {
  if (options.list) return listTerminals(context, sessionId)
  const { client, output, signal } = context
  if (options.close !== undefined) {
    await client.terminals.delete(sessionId, options.close, { signal })
    return output.result({ ok: true }, [`Closed ${options.close}`])
  }
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new CliError(
      EXIT.usage,
      'ash terminal needs a terminal itself',
      'Without one: ash exec <session> <command>',
    )
  const { id, command } = options
  const connection = await client.terminals.open(sessionId, { id, command, ...size(), signal })
  const end = await beTerminal(context, connection)
  tellEnd(context, sessionId, connection.id, end)
}

async function listTerminals({ client, output, signal }: Context, sessionId: string): Promise<void> {
  const terminals = await client.terminals.list(sessionId, { signal })
  const lines = terminals.map(({ id, command, cols, rows, viewers }) => [
    bold(id),
    `  ${command ?? 'shell'}  `,
    dim(`${cols}x${rows}, ${viewers === 1 ? '1 viewer' : `${viewers} viewers`}`),
  ])
  output.result({ terminals }, ...(lines.length > 0 ? lines : [['No terminals are open']]))
}

/** A terminal that does not know its own size says 0. */
const size = () => ({ cols: process.stdout.columns || 80, rows: process.stdout.rows || 24 })

/** Until it is over, every key goes there, and what comes from there is not made harmless: it is for a terminal. */
async function beTerminal({ signal }: Context, connection: TerminalConnection): Promise<TerminalEnd> {
  const keys = new EscapeKeys()
  const leave = () => connection.close()
  const type = (typed: Buffer) => {
    const { data, leaves } = keys.take(typed)
    if (data.length > 0) connection.write(data)
    if (leaves) leave()
  }
  const resize = () => connection.resize(size())
  connection.onData((data) => void process.stdout.write(data))
  process.stdin.setRawMode(true).on('data', type).resume()
  process.stdout.on('resize', resize)
  signal.addEventListener('abort', leave)
  try {
    return await connection.ended
  } finally {
    signal.removeEventListener('abort', leave)
    process.stdout.off('resize', resize)
    process.stdin.off('data', type).setRawMode(false).pause()
    process.stdout.write(AS_BEFORE)
  }
}

/** A program that did not end by itself leaves its modes behind: screen, cursor, mouse, pasting, colours. */
const AS_BEFORE = `${[1049, 1000, 1002, 1003, 1006, 2004, 1].map((mode) => `\x1b[?${mode}l`).join('')}\x1b[?25h\x1b[0m`

const SIGNAL_BASE = 128

function tellEnd({ output, setExitCode }: Context, sessionId: string, id: string, end: TerminalEnd): void {
  const again = `ash terminal ${sessionId} --id ${id}`
  if (end.reason === 'exited') setExitCode(end.code ?? SIGNAL_BASE + (end.signal ?? 0))
  else if (end.reason === 'closed') output.note(`\nLeft. For five minutes it is still there: ${again}`)
  else throw new CliError(EXIT.failed, WHY[end.reason], `Come back with: ${again}`)
}

const WHY = {
  sessionPaused: 'The session is being paused or ended',
  sandboxGone: 'The sandbox of the session has ended, and the terminal with it',
  serverStopping: 'The server is shutting down',
  tooSlow: 'The connection was too slow',
  lost: 'The connection was lost',
}
