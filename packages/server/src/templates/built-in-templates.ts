import type { Language, TemplateSettings } from '@ash-ai/shared'

/** Every tenant has these. They can be used and read, not changed. */
export const BUILT_IN_TEMPLATES: ReadonlyMap<string, TemplateSettings> = new Map([
  ['node', builtIn('JavaScript, run by Node, and shell', ['javascript', 'shell'])],
  ['python', builtIn('Python 3 and shell', ['python', 'shell'])],
  ['shell', builtIn('Shell', ['shell'])],
])

function builtIn(description: string, languages: Language[]): TemplateSettings {
  const ephemeral = { min: 0, target: 2, idle: 5 * 60_000 }
  return { description, languages, network: 'none', warm: { ephemeral } }
}
