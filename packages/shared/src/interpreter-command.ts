import type { Language, RunRequest } from './interpreter.ts'

/** Where the programs are, as the one who starts them sees it. */
export interface InterpreterPaths {
  python: string
  node: string
  /** `/bin/bash`, or `/bin/sh` where there is none. */
  bash: string
  /** Folder of the interpreter programs. */
  kernels: string
}

/**
 * Reads the script whole from the channel, closes it and becomes the script. The script is an argument for a moment,
 * so that it meets no variable of ours; the `PATH` is for `cat` alone, which the script's own might not have.
 */
const SHELL_PROGRAM = 'set -- "$(PATH=/usr/bin:/bin cat <&3)"; exec 3>&-; eval "shift;$1"'

const NODE_OPTIONS = [
  '--disable-warning=ExperimentalWarning', // What the interpreter itself needs is nothing that the code should tell.
  '--no-force-async-hooks-checks', // Code that is broken off by an interrupt does not leave what it has entered.
]

/** The program that a template names, as far as it is one of Python; otherwise the usual one. */
export const pythonName = (name = '') => (/^python[0-9.]*$/.test(name) ? name : 'python3')

/** Variables that a program reads at its start, and not again. */
export const STARTING_NAMES = /^(PATH|VIRTUAL_ENV|ASH_PYTHON|LANG|TZ|(LC_|LD_|PYTHON|NODE_).*)$/

/** What to start for a language. Nothing of a request is in it: arguments can be read by everybody inside. */
export function interpreterCommand(language: Language, paths: InterpreterPaths): [string, ...string[]] {
  switch (language) {
    case 'python':
      return [paths.python, `${paths.kernels}/python-kernel.py`]
    case 'javascript':
      return [paths.node, ...NODE_OPTIONS, `${paths.kernels}/javascript-kernel.mjs`]
    case 'shell':
      return paths.bash.endsWith('/bash')
        ? [paths.bash, '--noprofile', '--norc', '-c', SHELL_PROGRAM]
        : [paths.bash, '-c', SHELL_PROGRAM]
  }
}

/** What a shell gets by its channel. The variables stand in the first line, so that errors name the code's own lines. */
export function shellInput({
  code,
  env,
  sessionEnv,
}: Pick<RunRequest, 'code' | 'env' | 'sessionEnv'>): string {
  const exports = Object.entries({ ...sessionEnv, ...env })
    .filter(([name]) => /^[A-Za-z_]\w*$/.test(name))
    .map(([name, value]) => `export ${name}=${quote(value)};`)
  return exports.join('') + code
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

/** What a Python or JavaScript interpreter gets by its channel. The event is JSON already and goes in as it is. */
export function runLine({ event, ...request }: RunRequest): string {
  const json = JSON.stringify(request)
  // A line break between values is only whitespace; within a string JSON has none.
  const oneLine = event?.replace(/[\r\n]/g, ' ')
  return oneLine === undefined ? `{"run":${json}}\n` : `{"run":${json.slice(0, -1)},"event":${oneLine}}}\n`
}
