/**
 * Plays the hostile sandbox: as fast as it can, `folder` is a directory, then gone, then a link to somewhere
 * else, then a directory again. Arguments: the workspace, the milliseconds to go on.
 */
import { renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'

const [workspace = '', milliseconds = '0'] = process.argv.slice(2)
const folder = join(workspace, 'folder')
const link = join(workspace, 'link')
const aside = join(workspace, 'aside')

const end = Date.now() + Number(milliseconds)
while (Date.now() < end) {
  renameSync(folder, aside)
  try {
    renameSync(link, folder)
    renameSync(folder, link)
    renameSync(aside, folder)
  } catch {
    // While `folder` was gone, whoever is being tested made one.
    restoreFolder()
  }
}

function restoreFolder(): void {
  for (;;) {
    try {
      rmSync(folder, { recursive: true, force: true })
      renameSync(aside, folder)
      return
    } catch {}
  }
}
