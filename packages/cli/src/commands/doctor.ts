import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import type { Part } from '../output.ts'

const SCRIPT = fileURLToPath(new URL('../../../../scripts/doctor.mjs', import.meta.url))
const TIMEOUT_MS = 60_000

export function addDoctor(program: Command, run: Run): void {
  const examples = ['ash doctor', 'ash doctor --json | jq .summary', 'sudo ash doctor']
  const summary = 'Say what isolation this machine can give, what is missing and what mends it.'
  addCommand(program, 'doctor', summary, examples)
    .addHelpText('after', '\nExits with 0 if sandboxes can run here, warnings or not, else with 1.')
    .action(run(doctor))
}

async function doctor(context: Context): Promise<void> {
  const { output } = context
  const { code, stdout, stderr } = await runScript(context)
  const report = output.isJson ? parseJson(stdout) : stdout
  // Not even a report: the script itself could not run.
  if (!report || (code !== 0 && code !== 1)) {
    const reason = stderr.trim().split('\n').at(-1) || `it ended with ${code ?? 'a signal'}`
    throw new CliError(
      EXIT.failed,
      `Cannot look at this machine: ${reason}`,
      'In the checkout run: npm run setup',
    )
  }
  if (typeof report === 'string') for (const line of report.trimEnd().split('\n')) output.line(...paint(line))
  else output.event(report)
  context.setExitCode(code === 0 ? EXIT.ok : EXIT.failed)
}

/** In a process of its own, with the environment and the user that a server started here would have. */
async function runScript({ config, output, signal }: Context) {
  const child = spawn(process.execPath, [SCRIPT, ...(output.isJson ? ['--json'] : [])], {
    env: { ...config.serverEnv, ASH_DATA_DIR: config.dataDir },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: TIMEOUT_MS,
    signal,
  })
  const [[code], stdout, stderr] = await Promise.all([
    once(child, 'close') as Promise<[number | null]>,
    text(child.stdout),
    text(child.stderr),
  ])
  return { code, stdout, stderr }
}

const STYLES = { '✓': 'green', '!': 'cyan', '✗': 'red' } as const

function paint(line: string): Part[] {
  const mark = line.charAt(0)
  return mark in STYLES ? [{ text: mark, style: STYLES[mark as keyof typeof STYLES] }, line.slice(1)] : [line]
}

function parseJson(text: string): object | undefined {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
