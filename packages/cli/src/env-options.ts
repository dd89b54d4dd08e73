import { readEnvFile } from './agent-folder.ts'
import type { Config } from './config.ts'
import { CliError, EXIT } from './failure.ts'

export interface EnvOptions {
  env?: string[]
  envFile?: string[]
}

/** Collects an option that may be given several times. */
export const collect = (value: string, before: string[] = []) => [...before, value]

/** Variables from `--env-file` and over them from `--env`. */
export async function readEnvOptions(config: Config, options: EnvOptions): Promise<Record<string, string>> {
  const env: Record<string, string> = {}
  for (const file of options.envFile ?? []) {
    const variables = await readEnvFile(file)
    if (variables === undefined) throw usage(`There is no file ${file}`, 'Name a file of NAME=value lines')
    Object.assign(env, variables)
  }
  for (const option of options.env ?? []) {
    const [name, value] = toVariable(config, option)
    env[name] = value
  }
  return env
}

/** `NAME=value`, or `NAME` for the value it has here, which keeps it off the command line. */
function toVariable(config: Config, option: string): [string, string] {
  const equals = option.indexOf('=')
  const name = equals < 0 ? option : option.slice(0, equals)
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
    throw usage(`"${name}" is not the name of a variable`, 'Give --env NAME=value')
  }
  const value = equals < 0 ? config.variable(name) : option.slice(equals + 1)
  if (value === undefined) throw usage(`${name} is not set here`, 'Set it, or give --env NAME=value')
  return [name, value]
}

const usage = (what: string, next: string) => new CliError(EXIT.usage, what, next)
