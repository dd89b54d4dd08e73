import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os'
import { join } from 'node:path'
import { execute } from './execute.ts'
import { files } from './files.ts'
import { isolation } from './isolation.ts'
import { lifecycle } from './lifecycle.ts'
import { messageOverhead } from './message-overhead.ts'
import { sandboxRun } from './sandbox-run.ts'
import { sessionCreate } from './session-create.ts'
import { slowClient } from './slow-client.ts'
import { streaming } from './streaming.ts'

const BENCHES: Record<string, (parts: string[]) => Promise<string[]>> = {
  execute,
  files,
  isolation,
  lifecycle,
  'message-overhead': messageOverhead,
  'sandbox-run': sandboxRun,
  'session-create': sessionCreate,
  'slow-client': slowClient,
  streaming,
}
const FOLDER = join(import.meta.dirname, '../../docs/benchmarks')

// These take the names of parts after them; what a part alone measures is printed and not written.
const HAVE_PARTS = ['execute', 'files', 'lifecycle', 'streaming']
const [first = '', ...rest] = process.argv.slice(2)
const parts = HAVE_PARTS.includes(first) ? rest : []
const names = first === '' ? Object.keys(BENCHES) : [first, ...(parts.length > 0 ? [] : rest)]
for (const name of names) {
  const bench = BENCHES[name]
  if (!bench) {
    console.error(`There is no benchmark "${name}". There are: ${Object.keys(BENCHES).join(', ')}`)
    process.exit(2)
  }
  console.error(`${name} …`)
  const load = loadavg()[0] ?? 0
  const lines = await bench(parts)
  const text = [`# ${name}`, '', ...circumstances(name, load), '', ...lines, ''].join('\n')
  if (parts.length === 0) {
    await mkdir(FOLDER, { recursive: true })
    await writeFile(join(FOLDER, `${name}.md`), text)
  }
  console.log(text)
}

function circumstances(name: string, load: number): string[] {
  const memoryGb = Math.round(totalmem() / 2 ** 30)
  return [
    `- Command: \`pnpm bench ${name}\``,
    `- Date: ${new Date().toISOString().slice(0, 10)}`,
    `- Hardware: ${availableParallelism()} cores (${cpus()[0]?.model.trim() ?? 'unknown'}), ${memoryGb} GiB, Linux ${release()}, Node ${process.version}`,
    `- Load average before: ${load.toFixed(1)}. Machines are shared: the ratio to the floor of the same run is what counts.`,
  ]
}
