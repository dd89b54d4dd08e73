import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

const BWRAP = [
  ...['--unshare-user', '--unshare-all', '--disable-userns', '--ro-bind', '/usr', '/usr'],
  ...['--symlink', 'usr/bin', '/bin', '--symlink', 'usr/lib', '/lib', '--symlink', 'usr/lib64', '/lib64'],
  ...['--proc', '/proc', '--dev', '/dev', '--ro-bind', process.execPath, '/node'],
]

/** The least that any sandbox with Node in it has to start. */
export async function runBareNode(): Promise<void> {
  await run('bwrap', [...BWRAP, '/node', '-e', '0'])
}
