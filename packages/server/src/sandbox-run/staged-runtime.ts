import { readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { type Runtime, stageRuntime } from '@ash-ai/sandbox'
import { locateRuntime } from '../locate-runtime.ts'

/** What was staged last, and from which files. */
interface Known {
  sources: string
  runtime: Runtime
}

/**
 * The staged runtime, as servers share it. To know it by content takes longer than a handler does, so what it was
 * made from is also known by times and sizes; a server that clears the folder clears that too.
 */
export async function stagedRuntime(runtimeDir: string, bridgeEntry: string | undefined): Promise<Runtime> {
  const bridge = bridgeEntry ?? createRequire(import.meta.url).resolve('@ash-ai/bridge/bundle')
  const note = join(runtimeDir, 'known.json')
  const sources = describeSources(bridge)
  const known = readNote(note)
  if (known?.sources === sources && isThere(known.runtime)) return known.runtime
  const runtime = await stageRuntime(runtimeDir, locateRuntime(bridgeEntry))
  writeNote(note, { sources, runtime })
  return runtime
}

/** Without `claude`, which no interpreter needs: to find it takes a while. */
function describeSources(bridge: string): string {
  const kernels = join(dirname(bridge), 'kernels')
  const files = [process.execPath, bridge, ...readdirSync(kernels).map((name) => join(kernels, name))]
  return files
    .map((file) => {
      const { size, mtimeMs } = statSync(file)
      return `${file} ${size} ${mtimeMs}`
    })
    .join('\n')
}

const isThere = ({ dir }: Runtime) => statSync(dir, { throwIfNoEntry: false }) !== undefined

function readNote(note: string): Known | undefined {
  try {
    return JSON.parse(readFileSync(note, 'utf8')) as Known
  } catch {
    return undefined // None yet.
  }
}

/** Whole or not at all, and not at all where the folder is somebody else's. */
function writeNote(note: string, known: Known): void {
  const draft = `${note}.${process.pid}`
  try {
    writeFileSync(draft, JSON.stringify(known), { mode: 0o600 })
    renameSync(draft, note)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'EACCES' && code !== 'EROFS') throw error
  }
}
