import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { bold, dim, green } from '../output.ts'

const SCRIPT = fileURLToPath(new URL('../../../../scripts/registry.mjs', import.meta.url))
const TIMEOUT_MS = 60_000

interface RegistryReport {
  dir: string
  entries: { kind: string; name: string; description: string; file: string }[]
  faults: { text: string }[]
}

export function addRegistry(program: Command, run: Run): void {
  const registry = addCommand(program, 'registry', 'Environments, agents, tools and prompts as YAML files.', [
    'ash registry validate',
    'ash registry list ./registry',
    'ASH_REGISTRY_DIR=./registry ash start',
  ])
  const where = 'The folder is ASH_REGISTRY_DIR, else ./registry. No server is needed.'
  addCommand(registry, 'validate [folder]', 'Check a registry as a server would when it starts.', [
    'ash registry validate ./registry',
    'ash registry validate --json | jq -r ".faults[].text"',
  ])
    .addHelpText(
      'after',
      `\n${where}\nExits with 1 if there are faults, each with its file, line and column.`,
    )
    .action(run(validate))
  addCommand(registry, 'list [folder]', 'List what a registry has.', ['ash registry list'])
    .addHelpText('after', `\n${where}`)
    .action(run(list))
}

async function validate(context: Context, folder: string | undefined): Promise<void> {
  const { output } = context
  const report = await inspect(context, folder)
  const { dir, entries, faults } = report
  const good = [green('✓'), ' ', bold(dir), dim(`: ${count(entries, 'item')}, no faults`)]
  const bad = [...faults.map(({ text }) => [text]), [dim(`${count(faults, 'fault')} in ${dir}`)]]
  output.result(report, ...(faults.length === 0 ? [good] : bad))
  if (faults.length > 0) context.setExitCode(EXIT.failed)
}

async function list(context: Context, folder: string | undefined): Promise<void> {
  const { output } = context
  const { dir, entries, faults } = await inspect(context, folder)
  if (output.isJson) return output.event({ dir, entries })
  const rows = entries.map(({ kind, name, description, file }) => [kind, name, file, description])
  output.table(['KIND', 'NAME', 'FILE', 'DESCRIPTION'], rows)
  if (faults.length > 0)
    output.note(`${count(faults, 'fault')}. See them with: ash registry validate ${folder ?? ''}`)
}

const count = (things: unknown[], name: string) => `${things.length} ${name}${things.length === 1 ? '' : 's'}`

/** In a process of its own, with the environment and the user that a server started here would have. */
async function inspect({ config, signal }: Context, folder: string | undefined): Promise<RegistryReport> {
  const dir = folder ?? (config.variable('ASH_REGISTRY_DIR') || 'registry')
  const child = spawn(process.execPath, [SCRIPT, dir], {
    env: { ...config.serverEnv, ASH_DATA_DIR: config.dataDir },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: TIMEOUT_MS,
    signal,
  })
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  const report = parseReport(stdout)
  if (report) return report
  const reason = stderr.trim().split('\n').at(-1) || 'the check ended without an answer'
  throw new CliError(
    EXIT.failed,
    `Cannot check ${dir}: ${reason}`,
    'Correct that; in a new checkout run: npm run setup',
  )
}

function parseReport(text: string): RegistryReport | undefined {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
