import { createRequire, isBuiltin } from 'node:module'
import { isAbsolute, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { constants, Script } from 'node:vm'
import { loadCompiled } from '../compiled-module.ts'
import { CELL_GLOBAL } from './cell-global.ts'
import type { Cell, CellImport, transformCell } from './cell-transform.ts'
import { OWN_FILE, syntaxError } from './javascript-errors.ts'
import { workingFolder } from './working-folder.ts'

const { defineProperty, getOwnPropertyDescriptor } = Object
const scope = globalThis as Record<string, unknown>
/** Beside this program, with what V8 has made of it before: a parser takes longer to load than all the rest. */
const TRANSFORM_FILE = join(import.meta.dirname, 'cell-transform.cjs')

/** What a run left behind that is no value. */
export interface CellExports {
  find(name: string): unknown
  default: unknown
}

interface CellHost {
  default: unknown
  meta: ImportMeta
  import: (specifier: unknown, options?: ImportCallOptions) => Promise<unknown>
  call?: () => unknown
}

/** Runs code as a module whose bindings are global ones, so that they are there for the next. */
export class CellRunner {
  #names = new Set<string>()
  #host: CellHost = { default: undefined, meta: metaOf(), import: importFrom }
  #lastCwd = ''
  #transform: typeof transformCell

  constructor() {
    const compiled = loadCompiled(TRANSFORM_FILE)?.exports as
      | { transformCell: typeof transformCell }
      | undefined
    if (compiled === undefined) throw new Error(`${TRANSFORM_FILE} is missing`)
    this.#transform = compiled.transformCell
  }

  /** The value of the last expression, in a list; an empty one if there is none. */
  async run(code: string, filename: string): Promise<{ values: unknown[]; exports: CellExports }> {
    const cell = this.#parse(code, filename)
    const [functions, body] = compile(cell, filename)
    this.#prepare()
    for (const name of cell.names) this.#declare(name)
    functions?.runInThisContext()
    for (const plan of cell.imports) await bindImport(plan)
    const returned: unknown = body.runInThisContext({ breakOnSigint: true })
    const value = cell.isAsync ? ((await returned) as unknown[] | undefined)?.[0] : returned
    return { values: cell.hasValue ? [value] : [], exports: this.#exportsOf(cell) }
  }

  /** Calls a function so that an interrupt ends it. */
  call<T>(run: () => T): T {
    this.#host.call = run
    // Without the line that failed, which is not of the code.
    const options = { breakOnSigint: true, displayErrors: false }
    return new Script(`${CELL_GLOBAL}.call()`, { filename: OWN_FILE }).runInThisContext(options) as T
  }

  /** Forgets what earlier code declared. */
  reset(): void {
    for (const name of this.#names) {
      if (getOwnPropertyDescriptor(scope, name)?.configurable) delete scope[name]
      else scope[name] = undefined
    }
    this.#names.clear()
  }

  #parse(code: string, filename: string): Cell {
    try {
      return this.#transform(code)
    } catch (error) {
      throw syntaxError(error, filename, code)
    }
  }

  #prepare(): void {
    this.#host.default = undefined
    this.#host.meta = metaOf()
    hide(CELL_GLOBAL, this.#host)
    const module = { exports: {} }
    hide('module', module)
    hide('exports', module.exports)
    if (this.#lastCwd === workingFolder()) return
    this.#lastCwd = workingFolder()
    hide('require', createRequire(join(this.#lastCwd, 'cell.js')))
    hide('__dirname', this.#lastCwd)
    hide('__filename', join(this.#lastCwd, 'cell.js'))
  }

  /** What is there already keeps its value until the code gives it another. */
  #declare(name: string): void {
    this.#names.add(name)
    const known = getOwnPropertyDescriptor(scope, name)
    if (known?.writable || known?.configurable === false) return
    defineProperty(scope, name, {
      value: known && scope[name],
      writable: true,
      enumerable: true,
      configurable: true,
    })
  }

  #exportsOf({ exports }: Cell): CellExports {
    const ofModule = (scope.module as { exports?: unknown } | undefined)?.exports
    const fromModule = (name: string) => (ofModule as Record<string, unknown> | null | undefined)?.[name]
    const find = (name: string) => scope[exports.get(name) ?? name] ?? fromModule(name)
    const fallback = typeof ofModule === 'function' ? ofModule : fromModule('default')
    const named = exports.get('default')
    return { find, default: this.#host.default ?? (named === undefined ? fallback : scope[named]) }
  }
}

function compile(cell: Cell, filename: string): [Script | undefined, Script] {
  const strict = cell.isStrict ? "'use strict';" : ''
  const make = (before: string, source: string, after = '') =>
    new Script(before + source + after, {
      filename,
      columnOffset: -before.length,
      importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    })
  const functions = cell.functions === '' ? undefined : make(strict, cell.functions)
  return [
    functions,
    cell.isAsync ? make(`${strict}(async()=>{`, cell.body, '\n})()') : make(strict, cell.body),
  ]
}

async function bindImport({ specifier, attributes, bindings }: CellImport): Promise<void> {
  const module = (await importFrom(specifier, { with: attributes })) as Record<string, unknown>
  for (const [name, exported] of bindings) {
    if (exported !== '*' && !(exported in module))
      throw new SyntaxError(`The module '${specifier}' does not provide an export named '${exported}'`)
    scope[name] = exported === '*' ? module : module[exported]
  }
}

/** As a module in the working directory would; what only `require` finds, by NODE_PATH, is found as well. */
async function importFrom(specifier: unknown, options?: ImportCallOptions): Promise<unknown> {
  const load = new Script('(specifier, options) => import(specifier, options)', {
    filename: join(workingFolder(), 'cell.mjs'),
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  }).runInThisContext() as typeof importFrom
  const name = `${specifier}`
  try {
    return await load(name, options)
  } catch (error) {
    const path = isNotFound(error) && !/^\.{0,2}\//.test(name) ? findByRequire(name) : undefined
    if (path === undefined) throw error
    return load(pathToFileURL(path).href, options)
  }
}

const isNotFound = (error: unknown) => (error as { code?: unknown } | null)?.code === 'ERR_MODULE_NOT_FOUND'

function findByRequire(name: string): string | undefined {
  try {
    const path = createRequire(join(workingFolder(), 'cell.js')).resolve(name)
    return isAbsolute(path) ? path : undefined
  } catch {
    return undefined
  }
}

function metaOf(): ImportMeta {
  const dirname = workingFolder()
  const filename = join(dirname, 'cell.mjs')
  const { href } = pathToFileURL(filename)
  const resolve = (specifier: string) =>
    isBare(specifier) ? resolveBare(specifier, filename) : new URL(specifier, href).href
  return { url: href, filename, dirname, main: true, resolve }
}

const isBare = (specifier: string) => !/^(\.{0,2}\/|\.{1,2}$|[a-z][a-z\d+.-]*:)/i.test(specifier)

function resolveBare(name: string, from: string): string {
  if (isBuiltin(name)) return `node:${name}`
  // Node has them, its types do not yet.
  const options = { conditions: new Set(['node', 'import', 'module-sync']) } as object
  return pathToFileURL(createRequire(from).resolve(name, options)).href
}

function hide(name: string, value: unknown): void {
  defineProperty(scope, name, { value, writable: true, enumerable: false, configurable: true })
}
