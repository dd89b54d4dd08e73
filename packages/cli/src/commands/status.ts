import { AshConnectionError, type Health } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { serverFiles } from '../config.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { EXIT } from '../failure.ts'
import { bold, dim, green, type Part } from '../output.ts'
import { findServer } from '../server-process.ts'
import { healthLines } from './health.ts'

export function addStatus(program: Command, run: Run): void {
  const examples = ['ash status', 'ash status --json | jq .health.sandboxes', 'ash status || ash start']
  addCommand(program, 'status', 'Show whether a server is running and how it is.', examples)
    .addHelpText('after', '\nExits with 3 if no server answers.')
    .action(run(status))
}

async function status(context: Context): Promise<void> {
  const { config, output } = context
  const pid = await findServer(config.dataDir)
  const health = await findHealth(context)
  if (health === undefined) context.setExitCode(EXIT.unreachable)
  output.result(
    {
      running: health !== undefined,
      url: config.url,
      pid: pid ?? null,
      dataDir: config.dataDir,
      logFile: serverFiles(config.dataDir).log,
      health: health ?? null,
    },
    headline(health, config.url, pid),
    ...(pid === undefined ? [] : [[dim('  Process    '), String(pid)]]),
    [dim('  Data       '), config.dataDir],
    ...(health === undefined ? [] : healthLines(health)),
  )
}

function headline(health: Health | undefined, url: string, pid: number | undefined): Part[] {
  if (health !== undefined) return [green('●'), ' Running at ', bold(url)]
  return pid === undefined
    ? ['○ No server answers at ', bold(url), '. Start one with: ash start']
    : ['○ Process ', String(pid), ' does not answer at ', bold(url), '. See: ash logs']
}

async function findHealth({ client, signal }: Context): Promise<Health | undefined> {
  try {
    return await client.health({ timeoutMs: 5000, retries: 0, signal })
  } catch (error) {
    if (error instanceof AshConnectionError) return undefined
    throw error
  }
}
