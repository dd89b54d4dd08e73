import { execFile } from 'node:child_process'
import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { sessionDirs } from '@ash-ai/sandbox'
import { startTestServer } from '../../integration/support/test-server.ts'
import { alternate } from '../lifecycle/alternate.ts'
import { timesLine, timesTable, within } from '../lifecycle/tables.ts'
import { timed } from '../support/timed.ts'

const FOLDERS = 100
const FILES_EACH = 100
const ENTRIES = FOLDERS * (FILES_EACH + 1)
const ROUNDS = { rounds: 30, warmUp: 5 }
const MOST_MS = 200
const DEFAULT_PAGE = 1_000
const LARGEST_PAGE = 10_000

const run = promisify(execFile)

/** Everything below a workspace, over as many pages as that takes. */
export async function listing(): Promise<string[]> {
  const server = await startTestServer()
  try {
    const { files, sessions } = server.client
    const { id } = await sessions.create({ template: 'python' })
    const command = `for d in {1..${FOLDERS}}; do mkdir d$d; touch d$d/file-{1..${FILES_EACH}}.txt; done`
    await sessions.exec(id, { command })
    const { workspace } = sessionDirs(server.dataDir, id)
    const list = async (limit: number) => (await Array.fromAsync(files.listAll(id, { limit }))).length
    const times = await alternate(ROUNDS, {
      find: () => timedWhole(() => find(workspace)),
      node: () => timedWhole(() => readAll(workspace)),
      small: () => timedWhole(() => list(DEFAULT_PAGE)),
      large: () => timedWhole(() => list(LARGEST_PAGE)),
    })
    return [
      `\`GET …/files\` of ${FOLDERS * FILES_EACH} files in ${FOLDERS} folders until the last page is there and parsed: path, type, size and time of`,
      'each, names in order. One client. Floors: `find` as a process of its own and a recursion with `readdir` and `lstat` in',
      'Node, both on the folder itself, in no order and without a server.',
      '',
      ...timesTable(
        timesLine('`find -printf` (floor)', times.find),
        timesLine('Node, `readdir` and `lstat` (floor)', times.node),
        timesLine(`**pages of ${DEFAULT_PAGE}, as they are by default**`, times.small, within(MOST_MS)),
        timesLine(`**pages of ${LARGEST_PAGE}**`, times.large, within(MOST_MS)),
      ),
    ]
  } finally {
    await server.close()
  }
}

/** Milliseconds; throws unless `count` finds all there is. */
async function timedWhole(count: () => Promise<number>): Promise<number> {
  let found = 0
  const ms = await timed(async () => {
    found = await count()
  })
  if (found !== ENTRIES) throw new Error(`${found} entries, not ${ENTRIES}`)
  return ms
}

async function find(folder: string): Promise<number> {
  const options = { maxBuffer: 64 * 1024 * 1024 }
  const { stdout } = await run('find', [folder, '-mindepth', '1', '-printf', '%P %y %s %T@\\n'], options)
  return stdout.split('\n').length - 1
}

async function readAll(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const found = await Promise.all(entries.map(({ parentPath, name }) => lstat(join(parentPath, name))))
  return found.length
}
