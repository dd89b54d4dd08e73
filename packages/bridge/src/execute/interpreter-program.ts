import { accessSync, constants, existsSync } from 'node:fs'
import { AshError, type InterpreterPaths, interpreterCommand, type Language } from '@ash-ai/shared'

/** What to start for a language here, given the environment that it will have. */
export function findProgram(
  language: Language,
  env: Record<string, string>,
  kernels: string,
): [string, ...string[]] {
  const paths: InterpreterPaths = {
    python: language === 'python' ? findPython(env) : '',
    node: process.execPath,
    bash: existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh',
    kernels,
  }
  return interpreterCommand(language, paths)
}

/** That of the session's own packages, where it has any. */
function findPython({ VIRTUAL_ENV, PATH = '' }: Record<string, string>): string {
  const folders = PATH.split(':').filter((folder) => folder.startsWith('/'))
  const candidates = [
    ...(VIRTUAL_ENV ? [`${VIRTUAL_ENV}/bin/python`] : []),
    ...folders.map((folder) => `${folder}/python3`),
  ]
  const found = candidates.find(canRun)
  if (found !== undefined) return found
  throw new AshError(
    'interpreter_missing',
    'Python is not installed where this session runs: install python3 there, or choose javascript or shell',
  )
}

function canRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
