import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { CredentialScheme } from '@ash-ai/sdk'
import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { collect } from '../env-options.ts'
import { CliError, EXIT } from '../failure.ts'
import { bold, cyan, dim, green } from '../output.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'

export function addCredential(program: Command, run: Run): void {
  const credential = addCommand(program, 'credential', 'Secrets that sessions use without seeing them.', [
    'ash credential add github --host api.github.com --from-env GITHUB_TOKEN',
  ])
  addCommand(credential, 'add <name>', 'Store a credential, or replace the one of that name.', [
    'ash credential add github --host api.github.com --host uploads.github.com < token.txt',
    'ash credential add search --host api.search.example --scheme header:X-Api-Key --from-env SEARCH_KEY',
    'ash credential add wiki --host http://wiki.internal:8080 --scheme basic:robot',
  ])
    .requiredOption(
      '--host <host>',
      'host, host:port or http://host:port; repeatable, the first is the default',
      collect,
    )
    .option('--scheme <scheme>', 'bearer, header:<name>, basic:<username> or query:<name>', toScheme, {
      type: 'bearer',
    } as CredentialScheme)
    .option('--from-env <NAME>', 'take the secret from this variable; default stdin')
    .action(run(add))
  addPaging(
    addCommand(credential, 'list', 'List the credentials, without their secrets.', ['ash credential list']),
  ).action(run(list))
  addCommand(credential, 'delete <name>', 'Delete a credential; sessions can no longer use it.', [
    'ash credential delete github',
  ]).action(run(remove))
}

interface AddOptions {
  host: string[]
  scheme: CredentialScheme
  fromEnv?: string
}

async function add(context: Context, name: string, options: AddOptions): Promise<void> {
  const { client, output, signal } = context
  const secret = await readSecret(context, options.fromEnv)
  const { host: hosts, scheme } = options
  const credential = await client.credentials.create({ name, hosts, scheme, secret }, { signal })
  output.result(
    { credential },
    [green('✓'), ' Stored ', bold(credential.name), dim(` for ${credential.hosts.join(', ')}`)],
    ['Next: ', cyan(`ash session create <agent> --credential ${credential.name}`)],
  )
}

async function list({ client, output, signal }: Context, options: PagingOptions): Promise<void> {
  const page = await client.credentials.list({ ...options, signal })
  if (output.isJson) return output.event(page)
  const rows = page.credentials.map(({ name, hosts, scheme, updatedAt }) => [
    name,
    hosts.join(' '),
    formatScheme(scheme),
    updatedAt,
  ])
  if (rows.length === 0)
    output.note('No credentials yet. Store one with: ash credential add <name> --host <host>')
  else output.table(['NAME', 'HOSTS', 'SCHEME', 'UPDATED'], rows)
  showMore(output, page.nextCursor)
}

async function remove({ client, output, signal }: Context, name: string): Promise<void> {
  await client.credentials.delete(name, { signal })
  output.result({ deleted: name }, [green('✓'), ' Deleted ', bold(name)])
}

/** Never from the command line, which others on the machine can read and the shell remembers. */
async function readSecret(context: Context, variable: string | undefined): Promise<string> {
  const given = variable === undefined ? await readStdin(context) : context.config.variable(variable)
  const secret = given?.replace(/\r?\n$/, '') ?? ''
  if (secret !== '') return secret
  const what = variable === undefined ? 'stdin holds no secret' : `${variable} is not set here`
  throw new CliError(EXIT.usage, what, 'Give the secret on stdin, or a variable with --from-env NAME')
}

/** From a terminal one line, which is not shown. */
async function readStdin({ output, signal }: Context): Promise<string> {
  if (process.stdin.isTTY !== true) return text(process.stdin)
  const unseen = new Writable({ write: (_chunk, _encoding, done) => done() })
  const lines = createInterface({ input: process.stdin, output: unseen, terminal: true })
  output.note('The secret, which is not shown, and Enter:')
  try {
    return await lines.question('', { signal })
  } finally {
    lines.close()
  }
}

function toScheme(given: string): CredentialScheme {
  const [, type, name] = /^(\w+)(?::(.*))?$/s.exec(given) ?? []
  if (type === 'bearer' && name === undefined) return { type }
  if ((type === 'header' || type === 'query') && name) return { type, name }
  if (type === 'basic' && name !== undefined) return { type, username: name }
  throw new InvalidArgumentError('Give bearer, header:<name>, basic:<username> or query:<name>.')
}

function formatScheme(scheme: CredentialScheme): string {
  if (scheme.type === 'bearer') return scheme.type
  return `${scheme.type}:${scheme.type === 'basic' ? scheme.username : scheme.name}`
}
