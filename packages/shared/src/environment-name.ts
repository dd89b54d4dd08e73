/** What older clients call the templates built in. */
const ALIASES: Partial<Record<string, string>> = {
  python3: 'python',
  'python:latest': 'python',
  nodejs: 'node',
  'node:latest': 'node',
  bash: 'shell',
}

/** The template that an environment means, whatever its case; the name itself where there is none. */
export function toTemplateName(environment: string, templates: readonly string[]): string {
  const wanted = environment.toLowerCase()
  const found = templates.includes(environment)
    ? environment
    : templates.find((name) => name.toLowerCase() === wanted)
  return found ?? ALIASES[wanted] ?? environment
}
