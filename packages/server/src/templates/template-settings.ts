import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { parsePolicy } from '@ash-ai/sandbox'
import type { ErrorDetail, Language, Limits, TemplateSettings } from '@ash-ai/shared'
import { validationError } from '../http/validation-error.ts'
import { effectiveLimits } from '../sessions/effective-limits.ts'

/** Where a sandbox finds programs of the host. */
const PROGRAM_FOLDERS = ['/usr/bin', '/usr/local/bin']

/** Refuses what no session could have. */
export async function assertUsable(settings: TemplateSettings, most: Limits): Promise<void> {
  effectiveLimits(most, settings.limits)
  parsePolicy(settings.network ?? 'none')
  const details = [...(await runtimeFaults(settings)), ...warmFaults(settings)]
  if (details.length > 0) throw validationError(details)
}

async function runtimeFaults({ runtime }: TemplateSettings): Promise<ErrorDetail[]> {
  if (runtime === undefined) return []
  const paths = PROGRAM_FOLDERS.map((folder) => join(folder, runtime))
  for (const path of paths) if (await exists(path)) return []
  return [{ path: 'runtime', message: `is not on this host, looked for ${paths.join(' and ')}` }]
}

function warmFaults({ warm = {} }: TemplateSettings): ErrorDetail[] {
  return Object.entries(warm).flatMap(([mode, pool]) =>
    pool !== undefined && pool.target > 0 && pool.target < pool.min
      ? [{ path: `warm.${mode}.target`, message: 'must be at least `min`' }]
      : [],
  )
}

/** The languages that may be run; the first is the default. */
export function languagesOf({ languages, runtime = '' }: TemplateSettings): Language[] {
  if (languages) return [...new Set(languages)]
  if (runtime.startsWith('python')) return ['python', 'shell']
  return runtime.startsWith('node') ? ['javascript', 'shell'] : ['shell']
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )
