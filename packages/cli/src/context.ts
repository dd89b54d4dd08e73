import { AshClient } from '@ash-ai/sdk'
import type { Command } from 'commander'
import type { Config } from './config.ts'
import type { Interrupts } from './interrupts.ts'
import type { Output } from './output.ts'

/** What a command works with. */
export interface Context {
  config: Config
  output: Output
  client: AshClient
  interrupts: Interrupts
  /** Ends long work on Ctrl-C; goes into every request. */
  signal: AbortSignal
  /** For commands that report a failure as their result. */
  setExitCode(code: number): void
}

/** Turns a command's function into an action of commander. */
export type Run = <Args extends unknown[]>(
  action: (context: Context, ...args: Args) => Promise<void>,
) => (...args: Args) => Promise<void>

/** Fewer than usual: someone is waiting at a terminal. */
const RETRIES = 2

export function createClient(config: Config, url = config.url): AshClient {
  return new AshClient({ baseUrl: url, apiKey: config.apiKey, retries: RETRIES })
}

/** Adds a subcommand; every one explains itself with examples. */
export function addCommand(parent: Command, usage: string, summary: string, examples: string[]): Command {
  const lines = examples.map((example) => `  $ ${example}`).join('\n')
  return parent.command(usage).description(summary).addHelpText('after', `\nExamples:\n${lines}`)
}
