import { accessSync, constants, existsSync } from 'node:fs'
import {
  AshError,
  type InterpreterPaths,
  interpreterCommand,
  type Language,
  pythonName,
} from '@ash-ai/shared'

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
function findPython({ VIRTUAL_ENV, ASH_PYTHON = '', PATH = '' }: Record<string, string>): string {
  const folders = PATH.split(':').filter((folder) => folder.startsWith('/'))
  const candidates = [
    ...(VIRTUAL_ENV ? [`${VIRTUAL_ENV}/bin/python`] : []),
    ...folders.map((folder) => `${folder}/${pythonName(ASH_PYTHON)}`),
  ]
  const found = candidates.find(canRun)
  if (found !== undefined) return found
  throw new AshError(
    'interpreter_missing',
    `${pythonName(ASH_PYTHON)} is not installed where this session runs: install it there, or choose javascript or shell`,
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
