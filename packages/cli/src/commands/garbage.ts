import type { GarbageReport } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { dim, green } from '../output.ts'
import { whileWaiting } from '../progress.ts'
import { countOf, sizeOf } from '../quantities.ts'

export function addGarbage(program: Command, run: Run): void {
  const examples = ['ash gc --dry-run', 'ash gc', 'ash gc --json | jq .local.bytes']
  addCommand(program, 'gc', 'Delete stored files that no checkpoint refers to any more.', examples)
    .option('--dry-run', 'only say what would be deleted')
    .addHelpText('after', '\nThe server does the same by itself, every ASH_GC_INTERVAL_MS.')
    .action(run(collect))
}

async function collect({ client, output, signal }: Context, options: { dryRun?: true }): Promise<void> {
  const dryRun = options.dryRun === true
  const report = await whileWaiting(output, 'Looking through the store', client.gc({ dryRun }, { signal }))
  const verb = report.dryRun ? 'Would delete' : 'Deleted'
  output.result(
    report,
    [green('✓'), ` ${verb} ${amountOf(report.local)} of this host`],
    ...(report.remote === undefined ? [] : [[`  ${verb} ${amountOf(report.remote)} of the remote store`]]),
    [dim(`  In use: ${amountOf(report.kept)}`)],
  )
}

const amountOf = ({ blobs, bytes }: GarbageReport['kept']) => `${countOf(blobs, 'blob')}, ${sizeOf(bytes)}`
