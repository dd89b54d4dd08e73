import process from 'node:process'

const { cwd } = process
let last = '/'

/** Where the process is; where it was, once that folder is gone. */
export function workingFolder(): string {
  try {
    last = cwd()
  } catch {
    // Removed.
  }
  return last
}
