import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { BARE_ENV } from '../../support/run-process.ts'

const PROGRAM = `
  const { DatabaseSync } = require('node:sqlite')
  const db = new DatabaseSync(process.argv[1], { timeout: 30000 })
  db.exec('begin exclusive')
  process.stdout.write('locked')
  process.stdin.on('end', () => db.exec('rollback')).resume()`

/** Another process takes the database for itself, until it is told to let go. */
export async function lockDatabase(dataDir: string): Promise<{ release: () => Promise<void> }> {
  const child = spawn(process.execPath, ['-e', PROGRAM, join(dataDir, 'ash.db')], {
    env: BARE_ENV,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  await once(child.stdout, 'data')
  return {
    async release() {
      const exited = once(child, 'exit')
      child.stdin.end()
      await exited
    },
  }
}
