import { stat } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import type { Command } from 'commander'
import { readAgentFolder, toAgentName } from '../agent-folder.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { collect, type EnvOptions, readEnvOptions } from '../env-options.ts'
import { CliError, EXIT } from '../failure.ts'
import { bold, cyan, dim, green } from '../output.ts'
import { countOf, sizeOf } from '../quantities.ts'

export function addDeploy(program: Command, run: Run): void {
  const examples = [
    'ash deploy examples/hosted-agent',
    'ash deploy . --name support-bot',
    'ash deploy ./agent --env REGION=eu --env GITHUB_TOKEN   # the latter from this environment',
    'ash deploy ./agent --env-file production.env --json',
  ]
  addCommand(program, 'deploy <dir>', 'Deploy a folder with a CLAUDE.md as an agent.', examples)
    .option('--name <name>', "the agent's name; default the folder's")
    .option('-e, --env <NAME=value>', 'a variable for its sessions; repeatable', collect)
    .option('--env-file <file>', 'variables from a file; repeatable', collect)
    .addHelpText(
      'after',
      '\nVariables in .env and .env.local of the folder are set too; the files are not uploaded.' +
        '\nLeft out: .git, node_modules, .DS_Store and links.',
    )
    .action(run(deploy))
}

async function deploy(context: Context, dir: string, options: EnvOptions & { name?: string }): Promise<void> {
  const { client, output, signal } = context
  await checkFolder(dir)
  const name = options.name ?? toAgentName(basename(resolve(dir)))
  if (name === '') {
    throw new CliError(EXIT.usage, `No name can be made of "${dir}"`, 'Give one with --name')
  }
  const optionEnv = await readEnvOptions(context.config, options)
  const { files, bytes, env, skipped } = await readAgentFolder(dir)
  for (const line of skipped) output.note(dim(`skipped ${line}`))
  output.progress(`Deploying ${name}: ${countOf(files.length, 'file')}, ${sizeOf(bytes)}`)
  const agent = await client.agents.deploy({ name, files, env: { ...env, ...optionEnv } }, { signal })
  output.result(
    { agent, files: files.length, bytes, skipped },
    [green('✓'), ' Deployed ', bold(agent.name), ` version ${agent.version}`],
    [dim(`  ${countOf(files.length, 'file')}, ${sizeOf(bytes)}${variablesOf(agent.env)}`)],
    [''],
    ['Next: ', cyan(`ash chat ${agent.name} "Hello"`)],
  )
}

async function checkFolder(dir: string): Promise<void> {
  const found = await stat(dir).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
  })
  if (found?.isDirectory()) return
  const what = found ? `${dir} is not a folder` : `There is no folder ${dir}`
  throw new CliError(EXIT.usage, what, 'Name the folder that has the CLAUDE.md')
}

function variablesOf(env: Record<string, string>): string {
  const names = Object.keys(env)
  return names.length === 0 ? '' : `, variables ${names.join(', ')}`
}
