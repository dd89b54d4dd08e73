import { existsSync, lstatSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { AshError, type InterpreterPaths, type Language, pythonName } from '@ash-ai/shared'
import type { SandboxSpec } from '../provider.ts'
import { systemPath } from '../sandbox-env.ts'
import { SANDBOX_PATHS } from './bwrap-paths.ts'

const VENV_PYTHON = '.venv/bin/python'

/** The programs of an interpreter as a bwrap sandbox sees them. Throws `interpreter_missing` where one is not there. */
export function programsInside(spec: SandboxSpec, language: Language): InterpreterPaths {
  const kernels = requireKernels(spec, language) && SANDBOX_PATHS.kernels
  const venv = hasVenv(spec) ? join(SANDBOX_PATHS.home, VENV_PYTHON) : undefined
  return { ...systemPrograms(spec, language, venv), node: SANDBOX_PATHS.node, kernels }
}

/** The same without isolation. */
export function programsOutside(spec: SandboxSpec, language: Language): InterpreterPaths {
  const kernels = requireKernels(spec, language)
  const venv = hasVenv(spec) ? join(spec.homeDir, VENV_PYTHON) : undefined
  return { ...systemPrograms(spec, language, venv), node: spec.runtime.node, kernels }
}

function requireKernels({ runtime }: SandboxSpec, language: Language): string {
  if (runtime.kernels !== undefined || language === 'shell') return runtime.kernels ?? ''
  throw new AshError('interpreter_missing', 'The programs that run code were not built. Run "npm run setup".')
}

/** The link itself: what it leads to is inside. */
const hasVenv = ({ homeDir }: SandboxSpec) =>
  lstatSync(join(homeDir, VENV_PYTHON), { throwIfNoEntry: false }) !== undefined

function systemPrograms(
  { env }: SandboxSpec,
  language: Language,
  venv: string | undefined,
): Pick<InterpreterPaths, 'python' | 'bash'> {
  const name = pythonName(env.ASH_PYTHON)
  const python = venv ?? findPython(name)
  if (python === undefined && language === 'python') {
    throw new AshError(
      'interpreter_missing',
      `Python is not installed on the host of the sandboxes. Install it: apt-get update && apt-get install -y ${name}`,
    )
  }
  return { python: python ?? '', bash: existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh' }
}

const found = new Map<string, string>()

/** As a shell inside would find it: one that lies elsewhere than below /usr is not there inside. */
function findPython(name: string): string | undefined {
  const known = found.get(name)
  if (known !== undefined) return known
  const path = systemPath('')
    .split(':')
    .filter(Boolean)
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path) && realpathSync(path).startsWith('/usr/'))
  if (path !== undefined) found.set(name, path)
  return path
}
