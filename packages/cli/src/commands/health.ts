import type { Health } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { bold, dim, green, type Part } from '../output.ts'

export function addHealth(program: Command, run: Run): void {
  const examples = ['ash health', 'ash health --json', 'ash health --url https://ash.example.com']
  addCommand(program, 'health', 'Ask a server how it is.', examples).action(run(health))
}

async function health({ client, config, output, signal }: Context): Promise<void> {
  const facts = await client.health({ signal })
  output.result(facts, [green('●'), ' Healthy at ', bold(config.url)], ...healthLines(facts))
}

export function healthLines({ version, uptimeSeconds, sandboxes, ...facts }: Health): Part[][] {
  const model = facts.model === 'offline' ? 'offline (no ANTHROPIC_API_KEY)' : facts.model
  return [
    [dim('  Version    '), version],
    [dim('  Up         '), `${Math.round(uptimeSeconds)} s`],
    [dim('  Database   '), facts.database],
    [dim('  Sandboxes  '), `${sandboxes.live} of ${sandboxes.max} live, ${facts.provider}`],
    [dim('  Isolation  '), facts.isolation],
    [dim('  Model      '), model],
  ]
}
