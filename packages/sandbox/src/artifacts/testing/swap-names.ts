/**
 * Plays the hostile sandbox: as fast as it can, `report` is a file, then a link to a secret, then a file again, and
 * `folder` is a folder, then a link to where the secret is. Arguments: the workspace, the milliseconds to go on.
 */
import { renameSync } from 'node:fs'
import { join } from 'node:path'

const [workspace = '', milliseconds = '0'] = process.argv.slice(2)
const at = (name: string) => join(workspace, name)

const end = Date.now() + Number(milliseconds)
while (Date.now() < end) {
  for (const name of ['report', 'folder']) {
    renameSync(at(name), at(`.${name}-aside`))
    renameSync(at(`.${name}-link`), at(name))
    renameSync(at(name), at(`.${name}-link`))
    renameSync(at(`.${name}-aside`), at(name))
  }
}
