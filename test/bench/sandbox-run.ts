import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { alternate } from './lifecycle/alternate.ts'
import { timesFloor, timesLine, timesTable } from './lifecycle/tables.ts'
import { runBareNode } from './support/bare-bwrap.ts'
import { runBarePython } from './support/bare-python.ts'
import { timed } from './support/timed.ts'

const run = promisify(execFile)
const BIN = join(import.meta.dirname, '../../packages/cli/bin/sandbox-run.cjs')
const ROUNDS = { rounds: 40, warmUp: 4 }
const MOST_TIMES_FLOOR = 1.5
const HANDLERS = {
  'handler.py': 'def handler(event, context):\n    return event\n',
  'handler.mjs': 'export const handler = (event) => event\n',
}

/** The whole command, against a bare Node and after it a bare sandbox with the interpreter. */
export async function sandboxRun(): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-bench-'))
  try {
    for (const [name, text] of Object.entries(HANDLERS)) await writeFile(join(folder, name), text)
    const handle = (name: keyof typeof HANDLERS) =>
      timed(() => run(process.execPath, [BIN, join(folder, name), '--event', '{"n":1}']))
    const times = await alternate(ROUNDS, {
      node: () => timed(() => run(process.execPath, ['-e', '0'])),
      python: () => timed(() => runBarePython('import json')),
      javascript: () => timed(() => runBareNode()),
      forPython: () => handle('handler.py'),
      forJavaScript: () => handle('handler.mjs'),
    })
    const { node, python, javascript, forPython, forJavaScript } = times
    const sum = (inside: number[]) => node.map((ms, index) => ms + (inside[index] ?? 0))
    const goal = (samples: number[], inside: number[]) => timesFloor(samples, sum(inside), MOST_TIMES_FLOOR)
    return [
      'A handler that returns its event, from the start of the command to its end: sandbox made, run, and gone. The floor is',
      'the sum of a bare Node and a bare `bwrap` with the interpreter, one after the other.',
      '',
      ...timesTable(
        timesLine('bare `node -e 0`', node),
        timesLine("bare `bwrap python3 -c 'import json'`", python),
        timesLine('bare `bwrap node -e 0`', javascript),
        timesLine('**`sandbox-run handler.py`**', forPython, goal(forPython, python)),
        timesLine('**`sandbox-run handler.mjs`**', forJavaScript, goal(forJavaScript, javascript)),
      ),
    ]
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
