import { LANGUAGES, type Language, type Packages, type SessionMode } from '@ash-ai/sdk'
import { InvalidArgumentError } from 'commander'

/** Collects `pip:<name>` and `npm:<name>`. */
export function collectPackages(value: string, before: Packages = {}): Packages {
  const [, manager, spec] = /^(pip|npm):(.+)$/s.exec(value) ?? []
  if (spec === undefined || (manager !== 'pip' && manager !== 'npm'))
    throw new InvalidArgumentError('Give pip:<name> or npm:<name>, such as pip:numpy or npm:left-pad@^1.3.0.')
  return { ...before, [manager]: [...(before[manager] ?? []), spec] }
}

export function toLanguage(text: string): Language {
  const language = LANGUAGES.find((known) => known === text)
  if (language === undefined) throw new InvalidArgumentError(`Give one of ${LANGUAGES.join(', ')}.`)
  return language
}

export function toMode(text: string): SessionMode {
  if (text === 'ephemeral' || text === 'persistent') return text
  throw new InvalidArgumentError('Give ephemeral or persistent.')
}
