import { setTimeout as sleep } from 'node:timers/promises'
import type { SandboxInfo } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { countOf } from '../quantities.ts'
import { type CpuTimes, cpuTimes, SANDBOX_HEADER, sandboxRows } from '../sandbox-table.ts'

const REDRAW_MS = 1_000
const MAX_SHOWN = 1_000

export function addTop(program: Command, run: Run): void {
  addCommand(program, 'top', 'Watch live sandboxes, those that use most CPU first.', [
    'ash top',
    'ash top --json',
  ])
    .addHelpText('after', '\nWithout a terminal, and with --json, it shows them once. Ctrl-C ends it.')
    .action(run(top))
}

async function top({ client, output, signal }: Context): Promise<void> {
  const read = async () => (await client.sandboxes.list({ limit: MAX_SHOWN, signal })).sandboxes
  if (output.isJson) return output.event({ sandboxes: await read() })
  if (!output.isScreen) return show(output, await read(), undefined)
  for (let before: CpuTimes | undefined; ; await sleep(REDRAW_MS, undefined, { signal })) {
    const sandboxes = await read()
    output.clearScreen()
    show(output, sandboxes, before)
    before = cpuTimes(sandboxes, Date.now())
  }
}

function show(output: Context['output'], sandboxes: SandboxInfo[], before: CpuTimes | undefined): void {
  const now = Date.now()
  const spent = ({ id, usage }: SandboxInfo) => (usage?.cpuMs ?? 0) - (before?.get(id)?.cpuMs ?? 0)
  const busiest = sandboxes.toSorted((a, b) => spent(b) - spent(a))
  const memory = sandboxes.reduce((sum, { usage }) => sum + (usage?.memoryBytes ?? 0), 0)
  output.line(
    `${countOf(sandboxes.length, 'sandbox').replace(/xs$/, 'xes')}, ${Math.round(memory / 1024 ** 2)} MB`,
  )
  output.table(SANDBOX_HEADER, sandboxRows(busiest, now, before))
}
