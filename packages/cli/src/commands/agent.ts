import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { bold, dim, green } from '../output.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'

export function addAgent(program: Command, run: Run): void {
  const agent = addCommand(program, 'agent', 'See and delete agents.', ['ash agent list'])
  addPaging(
    addCommand(agent, 'list', 'List the agents.', ['ash agent list', 'ash agent list --json | jq .agents']),
  ).action(run(list))
  addCommand(agent, 'info <name>', 'Show an agent and its versions.', ['ash agent info hosted-agent']).action(
    run(info),
  )
  addCommand(agent, 'delete <name>', 'Delete an agent that no session uses.', [
    'ash agent delete hosted-agent',
  ]).action(run(remove))
}

async function list({ client, output, signal }: Context, options: PagingOptions): Promise<void> {
  const page = await client.agents.list({ ...options, signal })
  if (output.isJson) return output.event(page)
  const rows = page.agents.map(({ name, version, updatedAt }) => [name, String(version), updatedAt])
  if (rows.length === 0) output.note('No agents yet. Deploy one with: ash deploy <dir>')
  else output.table(['NAME', 'VERSION', 'UPDATED'], rows)
  showMore(output, page.nextCursor)
}

async function info({ client, output, signal }: Context, name: string): Promise<void> {
  const agent = await client.agents.get(name, { signal })
  const versions = await client.agents.versions(name, { signal })
  if (output.isJson) return output.event({ agent, versions })
  output.line(bold(agent.name), ` version ${agent.version}`)
  output.line(dim('  Deployed   '), agent.updatedAt)
  output.line(dim('  Content    '), agent.contentHash)
  output.line(dim('  Variables  '), Object.keys(agent.env).join(', ') || 'none')
  output.line(dim('  Options    '), JSON.stringify(agent.config))
  output.line('')
  output.table(
    ['VERSION', 'FILES', 'BYTES', 'CREATED'],
    versions.map(({ version, files, bytes, createdAt }) => [
      String(version),
      String(files),
      String(bytes),
      createdAt,
    ]),
  )
}

async function remove({ client, output, signal }: Context, name: string): Promise<void> {
  await client.agents.delete(name, { signal })
  output.result({ deleted: name }, [green('✓'), ' Deleted ', bold(name)])
}
