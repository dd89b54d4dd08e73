import type { InstalledPackages, PackageInstall } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { collectPackages } from '../code-options.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { green } from '../output.ts'

export function addPackages(program: Command, run: Run): void {
  const packages = addCommand(program, 'packages', 'Packages in the environment of a session.', [
    'ash packages install $id pip:requests',
    'ash packages list $id',
  ])
  addCommand(packages, 'list <session>', 'List what a session has of its own.', [
    'ash packages list $id',
    'ash packages list $id --json | jq -r ".pip[].name"',
  ]).action(run(list))
  addCommand(packages, 'install <session> <package...>', 'Install packages: pip:<name> or npm:<name>.', [
    'ash packages install $id pip:requests "pip:pandas>=2"',
    'ash packages install $id npm:left-pad@^1.3.0 --async',
  ])
    .option('--async', 'do not wait for the end')
    .addHelpText('after', "\nThe session's network policy has to allow where packages come from.")
    .action(run(install))
}

async function list({ client, output, signal }: Context, sessionId: string): Promise<void> {
  const found = await client.packages.list(sessionId, { signal })
  if (output.isJson) return output.event(found)
  const rows = [...rowsOf(found, 'pip'), ...rowsOf(found, 'npm')]
  if (rows.length === 0)
    output.note(`It has none. Install one: ash packages install ${sessionId} pip:requests`)
  else output.table(['KIND', 'NAME', 'VERSION'], rows)
  if (found.install && found.install.status !== 'completed') output.note(stateOf(found.install))
}

const rowsOf = (found: InstalledPackages, kind: 'pip' | 'npm') =>
  found[kind].map(({ name, version }) => [kind, name, version])

async function install(
  { client, output, signal }: Context,
  sessionId: string,
  specs: string[],
  options: { async?: boolean },
): Promise<void> {
  const packages = specs.reduce((before, spec) => collectPackages(spec, before), {})
  const isAsync = options.async === true
  const done = await client.packages.install(
    sessionId,
    { ...packages, ...(isAsync && { async: true }) },
    { signal },
  )
  if (output.isJson) return output.event({ install: done })
  output.line(...(done.status === 'completed' ? [green('✓'), ' Installed'] : [stateOf(done)]))
  for (const warning of done.warnings) output.note(`warning: ${warning}`)
  if (done.restartKernels) output.note(`Kernels that run do not see it yet: ash kernel restart ${sessionId}`)
}

function stateOf({ status, error }: PackageInstall): string {
  return status === 'running' ? 'Installing …' : `The last installation failed: ${error?.message ?? ''}`
}
