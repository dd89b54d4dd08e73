import { readFile } from 'node:fs/promises'
import type { Language, Packages, Template, TemplateCreate } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { collectPackages, toLanguage } from '../code-options.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { toDuration, toRunTimeout } from '../durations.ts'
import { collect, type EnvOptions, readEnvOptions } from '../env-options.ts'
import { CliError, EXIT } from '../failure.ts'
import { given } from '../given.ts'
import { bold, cyan, dim, green } from '../output.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'

export function addTemplate(program: Command, run: Run): void {
  const template = addCommand(program, 'template', 'Environments that sessions begin with.', [
    'ash template list',
    'ash template create science --runtime python3 --package pip:numpy',
  ])
  addPaging(addCommand(template, 'list', 'List the templates.', ['ash template list'])).action(run(list))
  addCommand(template, 'show <name>', 'Show a template.', ['ash template show python']).action(run(show))
  addCreate(template, run)
  addCommand(template, 'delete <name>', 'Delete a template that nothing uses.', [
    'ash template delete science',
  ]).action(run(remove))
}

type CreateOptions = EnvOptions & {
  file?: string
  replace?: true
  description?: string
  runtime?: string
  language?: Language[]
  package?: Packages
  allow?: string[]
  open?: true
  timeout?: number
  idleTimeout?: number
  lifetime?: number
}

function addCreate(template: Command, run: Run): void {
  addCommand(template, 'create [name]', 'Create a template from options, a file, or both.', [
    'ash template create science --language python --package pip:numpy --timeout 60s',
    'ash template create fetcher --runtime node --allow api.github.com',
    'ash template create --file template.json --replace',
  ])
    .option('--file <file>', 'settings as JSON, as the API takes them; options go over them')
    .option('--replace', 'also where there is one of that name')
    .option('--description <text>', 'what it is for')
    .option('--runtime <program>', 'the interpreter, such as python3 or node')
    .option(
      '--language <language>',
      'that may be run, the first is the default; repeatable',
      collectLanguages,
    )
    .option('--package <pip:name>', 'install this: pip:<name> or npm:<name>; repeatable', collectPackages)
    .option('-e, --env <NAME=value>', 'a variable; repeatable', collect)
    .option('--env-file <file>', 'variables from a file; repeatable', collect)
    .option('--allow <host>', 'a host that may be reached; repeatable; default none', collect)
    .option('--open', 'everything public may be reached')
    .option('--timeout <time>', 'of executions that name none: 30s, 5m; default 300s', toRunTimeout)
    .option('--idle-timeout <time>', 'without work a session keeps no process for longer', toDuration)
    .option('--lifetime <time>', 'a sandbox is replaced after so long', toDuration)
    .action(run(create))
}

async function list({ client, output, signal }: Context, options: PagingOptions): Promise<void> {
  const page = await client.templates.list({ ...options, signal })
  if (output.isJson) return output.event(page)
  const rows = page.templates.map(({ name, languages, isBuiltIn, description = '' }) => [
    name,
    languages.join(' '),
    isBuiltIn ? 'yes' : '',
    description,
  ])
  output.table(['NAME', 'LANGUAGES', 'BUILT IN', 'DESCRIPTION'], rows)
  showMore(output, page.nextCursor)
}

async function show({ client, output, signal }: Context, name: string): Promise<void> {
  const template = await client.templates.get(name, { signal })
  output.result({ template }, [bold(template.name)], ...settingsOf(template))
}

/** Everything that is set, under the names that the API has for it. */
function settingsOf({ name: _, ...settings }: Template) {
  return Object.entries(settings).map(([name, value]) => [
    dim(`  ${name.padEnd(13)}`),
    typeof value === 'string' ? value : JSON.stringify(value),
  ])
}

async function create(context: Context, name: string | undefined, options: CreateOptions): Promise<void> {
  const { client, output, signal } = context
  const wanted = await toTemplate(context, name, options)
  const template = options.replace
    ? await client.templates.put(wanted, { signal })
    : await client.templates.create(wanted, { signal })
  const verb = options.replace ? 'Stored' : 'Created'
  output.result(
    { template },
    [green('✓'), ` ${verb} `, bold(template.name), dim(` for ${template.languages.join(', ')}`)],
    ['Next: ', cyan(`ash run --template ${template.name} …`)],
  )
}

async function toTemplate(
  context: Context,
  argument: string | undefined,
  options: CreateOptions,
): Promise<TemplateCreate> {
  const file = options.file === undefined ? {} : await readSettings(options.file)
  const env = { ...file.env, ...(await readEnvOptions(context.config, options)) }
  const { description, runtime, language: languages, package: packages } = options
  const { timeout, idleTimeout, lifetime } = options
  const network = options.open ? ('open' as const) : options.allow
  const name = argument ?? file.name
  if (name === undefined)
    throw new CliError(EXIT.usage, 'The template has no name', 'Give one: ash template create <name>')
  return {
    ...file,
    ...given({ description, runtime, languages, packages, network, timeout, idleTimeout, lifetime }),
    ...(Object.keys(env).length > 0 && { env }),
    name,
  }
}

async function readSettings(file: string): Promise<Partial<TemplateCreate>> {
  const next = 'Name a file with a JSON object, such as {"languages": ["python"], "network": "none"}'
  const content = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new CliError(EXIT.usage, `${file} cannot be read (${error.code})`, next)
  })
  try {
    const settings: unknown = JSON.parse(content)
    // What is in it is the server's to judge, which names each field.
    if (typeof settings === 'object' && settings !== null) return settings
  } catch (error) {
    throw new CliError(EXIT.usage, `${file} is not JSON: ${(error as Error).message}`, next)
  }
  throw new CliError(EXIT.usage, `${file} is no JSON object`, next)
}

async function remove({ client, output, signal }: Context, name: string): Promise<void> {
  await client.templates.delete(name, { signal })
  output.result({ deleted: name }, [green('✓'), ' Deleted ', bold(name)])
}

const collectLanguages = (value: string, before: Language[] = []) => [...before, toLanguage(value)]
