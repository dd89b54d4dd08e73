import { resolve } from 'node:path'
import { readConfig } from '../config.ts'
import type { Fault } from './fault.ts'
import { formatFault } from './fault.ts'
import { loadRegistry, type RegistryEntry } from './load-registry.ts'

export interface RegistryReport {
  dir: string
  entries: RegistryEntry[]
  /** `text` is the whole of it in one line. */
  faults: (Fault & { text: string })[]
}

/** What a server that is started with this environment would find in the registry. */
export async function inspectRegistry(env: NodeJS.ProcessEnv, dir: string): Promise<RegistryReport> {
  const path = resolve(dir)
  const { entries, faults } = await loadRegistry(path, readConfig(env))
  return { dir: path, entries, faults: faults.map((fault) => ({ ...fault, text: formatFault(fault) })) }
}
