import { spawn } from 'node:child_process'
import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { toDuration } from '../durations.ts'
import { dim } from '../output.ts'

export function addPorts(program: Command, run: Run): void {
  addCommand(program, 'ports <session>', 'List the ports on which something inside a session listens.', [
    'ash ports $id',
  ]).action(run(list))
  addCommand(program, 'preview <session>', 'Print a link to what a port of a session serves.', [
    'ash preview $id 3000',
    'ash preview $id 3000 --expires 8h --open',
    'ash preview $id 5173 --wake --json',
  ])
    .argument('<port>', 'the port inside', toPort)
    .option('--expires <time>', 'how long the link is good, such as 30m, 1h or 7d; default 1h', toDuration)
    .option('--wake', 'whoever opens it may wake the session when it is paused')
    .option('--open', 'open it in a browser')
    .addHelpText('after', '\nWhoever has the link needs no key.')
    .action(run(preview))
}

async function list({ client, output, signal }: Context, sessionId: string): Promise<void> {
  const ports = await client.ports.list(sessionId, { signal })
  if (output.isJson) return output.event({ ports })
  const rows = ports.map(({ port, address, pid, command }) => [
    String(port),
    address,
    pid === undefined ? '' : String(pid),
    command ?? '',
  ])
  if (rows.length === 0) output.note('Nothing listens in the session.')
  else output.table(['PORT', 'ADDRESS', 'PID', 'COMMAND'], rows)
}

interface PreviewFlags {
  expires?: number
  wake?: true
  open?: true
}

async function preview(
  { client, output, signal }: Context,
  sessionId: string,
  port: number,
  { expires, wake, open }: PreviewFlags,
): Promise<void> {
  const wanted = {
    ...(expires !== undefined && { expiresIn: Math.ceil(expires / 1000) }),
    ...(wake && { wake }),
  }
  const link = await client.ports.link(sessionId, port, wanted, { signal })
  output.result(link, [link.url])
  if (!output.isJson) output.note(dim(`Good until ${link.expiresAt}`))
  if (open) await openInBrowser(output, link.url)
}

function toPort(text: string): number {
  if (/^[1-9]\d{0,4}$/.test(text) && Number(text) <= 65_535) return Number(text)
  throw new InvalidArgumentError('Give a port from 1 to 65535.')
}

/** The address is one argument: nothing takes it apart. */
async function openInBrowser(output: Context['output'], url: string): Promise<void> {
  const [program, ...args] = process.platform === 'darwin' ? ['open', url] : ['xdg-open', url]
  await new Promise<void>((resolve) => {
    const child = spawn(program, args, { stdio: 'ignore', detached: true })
    child.once('error', () => {
      output.note(`Could not start ${program}; open the link yourself.`)
      resolve()
    })
    child.once('spawn', () => {
      child.unref()
      resolve()
    })
  })
}
