import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { nodeModule, vm } from './late-modules.ts'

interface CompiledModule {
  exports: Record<string, unknown>
  /** Whether V8 took what it had made of the file before. It does not from another version of itself. */
  isFromCache: boolean
  /** What V8 has made of the file by now, to be kept as `<file>.cache`. */
  makeCache(): Buffer
}

/** Runs a CommonJS file, from its cache where it has one. Undefined where there is no such file. */
export function loadCompiled(file: string): CompiledModule | undefined {
  const source = readIfThere(file)?.toString()
  if (source === undefined) return undefined
  const { Script } = vm()
  const script = new Script(`(function (exports, require, module, __filename, __dirname) {${source}\n})`, {
    filename: file,
    cachedData: readCache(`${file}.cache`),
  })
  const module = { exports: {} }
  const run = script.runInThisContext() as (...args: unknown[]) => void
  run(module.exports, nodeModule().createRequire(file), module, file, dirname(file))
  return {
    exports: module.exports,
    isFromCache: script.cachedDataRejected === false,
    makeCache: () => script.createCachedData(),
  }
}

/** Without it the same is compiled again, whatever keeps it from being read. */
function readCache(file: string): Buffer | undefined {
  try {
    return readFileSync(file)
  } catch {
    return undefined
  }
}

function readIfThere(file: string): Buffer | undefined {
  try {
    return readFileSync(file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    return undefined
  }
}
