import type { Language } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { toLanguage } from '../code-options.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { green } from '../output.ts'

export function addKernel(program: Command, run: Run): void {
  const kernel = addCommand(program, 'kernel', 'Interpreters of a session, which keep their variables.', [
    'ash kernel list $id',
    'ash kernel restart $id',
  ])
  addCommand(kernel, 'list <session>', 'List the kernels of a session.', ['ash kernel list $id']).action(
    run(list),
  )
  addOne(kernel, 'restart', 'Start a kernel anew, without its variables.').action(run(restart))
  addOne(kernel, 'interrupt', 'Stop what runs in a kernel; its variables stay.').action(run(interrupt))
  addOne(kernel, 'delete', 'End a kernel, with what runs and waits in it.').action(run(remove))
}

function addOne(parent: Command, verb: string, summary: string): Command {
  return addCommand(parent, `${verb} <session> [name]`, summary, [
    `ash kernel ${verb} $id`,
    `ash kernel ${verb} $id analysis --language javascript`,
  ])
    .option('--language <language>', 'python, javascript; default python', toLanguage)
    .addHelpText('after', '\nWithout a name it is the kernel "default".')
}

async function list({ client, output, signal }: Context, sessionId: string): Promise<void> {
  const kernels = await client.kernels.list(sessionId, { signal })
  if (output.isJson) return output.event({ kernels })
  const rows = kernels.map(({ name, language, state, waiting, runs, lastUsedAt }) => [
    name,
    language,
    state,
    String(waiting),
    String(runs),
    lastUsedAt,
  ])
  if (rows.length === 0)
    output.note(`No kernels run. The first code starts one: ash run --session ${sessionId} …`)
  else output.table(['NAME', 'LANGUAGE', 'STATE', 'WAITING', 'RUNS', 'LAST USED'], rows)
}

interface KernelOptions {
  language?: Language
}

async function restart(
  { client, output, signal }: Context,
  sessionId: string,
  name: string | undefined,
  { language }: KernelOptions,
): Promise<void> {
  const kernel = await client.kernels.restart(sessionId, { name, language }, { signal })
  output.result({ kernel }, [green('✓'), ` Restarted ${kernel.language} kernel ${kernel.name}`])
}

async function interrupt(
  { client, output, signal }: Context,
  sessionId: string,
  name: string | undefined,
  { language }: KernelOptions,
): Promise<void> {
  await client.kernels.interrupt(sessionId, { name, language }, { signal })
  output.result({ interrupted: name ?? 'default' }, [green('✓'), ' Interrupted'])
}

async function remove(
  { client, output, signal }: Context,
  sessionId: string,
  name: string | undefined,
  { language }: KernelOptions,
): Promise<void> {
  await client.kernels.delete(sessionId, { name, language }, { signal })
  output.result({ deleted: name ?? 'default' }, [green('✓'), ` Deleted kernel ${name ?? 'default'}`])
}
