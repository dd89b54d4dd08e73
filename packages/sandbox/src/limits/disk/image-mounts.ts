import { readdir, readFile } from 'node:fs/promises'

/** Mount points below a folder, the innermost first, from the text of `/proc/self/mountinfo`. */
export function mountPointsBelow(mountinfo: string, folder: string): string[] {
  const points = mountinfo
    .split('\n')
    .map((line) => unescapePath(line.split(' ')[4] ?? ''))
    .filter((point) => point.startsWith(`${folder}/`))
  // Listed in the order of mounting: what came last may lie on what came before.
  return points.reverse()
}

/** Blanks, tabs, line ends and backslashes are written as octal numbers there. */
function unescapePath(text: string): string {
  // The path is bytes: a folder's name need not be ASCII, and an escape stands for one byte.
  const bytes = Buffer.from(text).toString('latin1')
  const unescaped = bytes.replace(/\\([0-7]{3})/g, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 8)),
  )
  return Buffer.from(unescaped, 'latin1').toString()
}

/** Whether the kernel still uses an image, perhaps for a mount that is no longer in this process's view. */
export async function isAttached(image: string): Promise<boolean> {
  for (const device of await readdir('/sys/block').catch(() => [])) {
    if (!device.startsWith('loop')) continue
    const file = await readFile(`/sys/block/${device}/loop/backing_file`, 'utf8').catch(() => '')
    if (file.trimEnd() === image) return true
  }
  return false
}
