import { run } from '../../scripts/lib/processes.mjs'

interface Ended {
  code: number
  output: string
  isTimeout: boolean
}

/** Runs a command to its end; a signal to us ends it too. Typed here: the scripts are plain JavaScript. */
export const runCommand = run as (
  command: string,
  args: string[],
  options: { timeoutMs: number; output?: 'keep' | 'inherit' },
) => Promise<Ended>
