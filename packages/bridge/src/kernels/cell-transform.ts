import {
  type AnyNode,
  type ExportNamedDeclaration,
  type ImportDeclaration,
  type ModuleDeclaration,
  type Options,
  type Pattern,
  type Program,
  parse,
  type Statement,
  type VariableDeclaration,
} from 'acorn'
import { CELL_GLOBAL } from './cell-global.ts'

/** Code of a module made into scripts that can be run one after the other in one global scope. */
export interface Cell {
  /** Only the functions declared at the top, each where it was: they are there before anything else runs. */
  functions: string
  /** All the rest. Its bindings are properties of the global object; `isAsync`: it is the body of a function. */
  body: string
  isStrict: boolean
  isAsync: boolean
  /** The last statement is an expression. */
  hasValue: boolean
  /** What the code declares; what its body assigns to has to be there. */
  names: string[]
  imports: CellImport[]
  /** Exported name → name of the binding. */
  exports: Map<string, string>
}

export interface CellImport {
  specifier: string
  attributes: Record<string, string>
  /** Name of the binding → exported name, `*` for all. */
  bindings: Map<string, string>
}

type TopLevel = Statement | ModuleDeclaration
interface Edit {
  start: number
  end: number
  text: string
}

/** No line is added or taken away, so that every error names the line its author knows. Throws `SyntaxError`. */
export function transformCell(code: string): Cell {
  const source = code.startsWith('#!') ? `//${code.slice(2)}` : code
  const { program, isStrict } = parseCell(source)
  const isAsync = nodesOf(program, false).some(isAwait)
  const cell: Cell = {
    functions: '',
    body: '',
    isStrict,
    isAsync,
    hasValue: program.body.at(-1)?.type === 'ExpressionStatement',
    names: [],
    imports: [],
    exports: new Map(),
  }
  const hosted = hostEdits(program)
  const edits = [...hosted]
  const functions: Edit[] = []
  for (const node of program.body) editTopLevel(node, { cell, edits, functions, source })
  if (isAsync) editNestedVars(program, cell, edits, source)
  const last = program.body.at(-1)
  if (isAsync && last?.type === 'ExpressionStatement') {
    edits.push(insert(last.start, 'return [('), insert(last.expression.end, ')]'))
  }
  cell.functions = keepOnly(source, functions, hosted)
  cell.body = rewrite(source, 0, source.length, outermost(edits))
  return cell
}

function parseCell(source: string): { program: Program; isStrict: boolean } {
  const options: Options = {
    ecmaVersion: 'latest',
    sourceType: 'module',
    allowAwaitOutsideFunction: true,
    preserveParens: true, // Otherwise what is inserted after an expression would stand within them.
  }
  try {
    return { program: parse(source, options), isStrict: true }
  } catch (error) {
    try {
      return { program: parse(source, { ...options, sourceType: 'script' }), isStrict: false }
    } catch {
      throw error
    }
  }
}

interface EditState {
  cell: Cell
  edits: Edit[]
  functions: Edit[]
  source: string
}

function editTopLevel(node: TopLevel, state: EditState): void {
  const { cell, edits, functions, source } = state
  switch (node.type) {
    case 'FunctionDeclaration':
      cell.names.push(node.id.name)
      functions.push({ start: node.start, end: node.end, text: '' })
      edits.push(blanked(node, source))
      break
    case 'ClassDeclaration':
      cell.names.push(node.id.name)
      edits.push(insert(node.start, `${node.id.name}=`), insert(node.end, ';'))
      break
    case 'VariableDeclaration':
      if (node.kind === 'const' || node.kind === 'let') editDeclaration(node, cell, edits, source)
      break
    case 'ImportDeclaration':
      cell.imports.push(importOf(node))
      cell.names.push(...(cell.imports.at(-1)?.bindings.keys() ?? []))
      edits.push(blanked(node, source))
      break
    case 'ExportNamedDeclaration':
      editExport(node, state)
      break
    case 'ExportAllDeclaration':
      cell.imports.push({ specifier: textOf(node.source.value), attributes: {}, bindings: new Map() })
      edits.push(blanked(node, source))
      break
    case 'ExportDefaultDeclaration':
      editDefault(node, state)
  }
}

function editExport(node: ExportNamedDeclaration, state: EditState): void {
  const { cell, edits, source } = state
  if (node.declaration) {
    edits.push(blanked({ start: node.start, end: node.declaration.start }, source))
    editTopLevel(node.declaration, state)
    return
  }
  edits.push(blanked(node, source))
  const names = node.specifiers.map(({ exported, local }) => [nameOf(exported), nameOf(local)] as const)
  if (!node.source) {
    for (const [exported, local] of names) cell.exports.set(exported, local)
    return
  }
  const bindings = new Map(names.map(([exported, imported]) => [exported, imported]))
  // `default` can be no binding of its own.
  const renamed = new Map([...bindings].map(([name, from]) => [name === 'default' ? 'handler' : name, from]))
  cell.imports.push({ specifier: textOf(node.source.value), attributes: {}, bindings: renamed })
  cell.names.push(...renamed.keys())
}

function editDefault(
  { start, end, declaration }: Extract<TopLevel, { type: 'ExportDefaultDeclaration' }>,
  { cell, edits, functions, source }: EditState,
): void {
  if (declaration.type === 'FunctionDeclaration' && declaration.id) {
    functions.push({ start: declaration.start, end: declaration.end, text: '' })
    edits.push(blanked({ start, end }, source))
    cell.names.push(declaration.id.name)
    cell.exports.set('default', declaration.id.name)
    return
  }
  const name = declaration.type === 'ClassDeclaration' ? declaration.id?.name : undefined
  if (name !== undefined) cell.names.push(name)
  const target = name === undefined ? '' : `${name}=`
  const lines = blank(source.slice(start, declaration.start)).replaceAll(' ', '')
  edits.push({ start, end: declaration.start, text: `${lines};${CELL_GLOBAL}.default=(${target}` })
  edits.push(insert(declaration.end, ');'))
}

/** `const a = 1, { b } = c` becomes `  0,( a = 1, { b } = c);`: the number ends a line before that has no semicolon. */
function editDeclaration(node: VariableDeclaration, cell: Cell, edits: Edit[], source: string): void {
  edits.push({
    start: node.start,
    end: node.start + node.kind.length,
    text: '0,('.padStart(node.kind.length),
  })
  for (const { id, init, end } of node.declarations) {
    cell.names.push(...boundNames(id))
    if (!init && node.kind !== 'var') edits.push(insert(end, '=void 0'))
  }
  const end = node.declarations.at(-1)?.end ?? node.end
  edits.push(insert(end, source[node.end - 1] === ';' ? ')' : ');'))
}

/** In a function `var` would be the function's own. */
function editNestedVars(program: Program, cell: Cell, edits: Edit[], source: string): void {
  const heads = new Map<AnyNode, 'init' | 'left'>()
  for (const node of nodesOf(program, false)) {
    if (node.type === 'ForStatement' && node.init) heads.set(node.init, 'init')
    if (node.type === 'ForInStatement' || node.type === 'ForOfStatement') heads.set(node.left, 'left')
    if (node.type !== 'VariableDeclaration' || node.kind !== 'var') continue
    const head = heads.get(node)
    if (head === undefined) {
      editDeclaration(node, cell, edits, source)
      continue
    }
    for (const { id } of node.declarations) cell.names.push(...boundNames(id))
    edits.push({ start: node.start, end: node.start + 3, text: head === 'init' ? '  (' : '   ' })
    if (head === 'init') edits.push(insert(node.end, ')'))
  }
}

/** `import(…)` and `import.meta` of a script would be those of nobody. */
function hostEdits(program: Program): Edit[] {
  return nodesOf(program, true).flatMap((node) => {
    if (node.type === 'ImportExpression')
      return { start: node.start, end: node.start + 6, text: `${CELL_GLOBAL}.import` }
    if (node.type === 'MetaProperty' && node.meta.name === 'import')
      return { start: node.start, end: node.end, text: `${CELL_GLOBAL}.meta` }
    return []
  })
}

function importOf(node: ImportDeclaration): CellImport {
  const bindings = node.specifiers.map((each): [string, string] => {
    if (each.type === 'ImportDefaultSpecifier') return [each.local.name, 'default']
    return [each.local.name, each.type === 'ImportSpecifier' ? nameOf(each.imported) : '*']
  })
  const attributes = node.attributes.map(({ key, value }) => [nameOf(key), textOf(value.value)])
  return {
    specifier: textOf(node.source.value),
    attributes: Object.fromEntries(attributes),
    bindings: new Map(bindings),
  }
}

const textOf = (value: unknown) => String(value)
const nameOf = (node: { type: string; name?: string; value?: unknown }) => node.name ?? textOf(node.value)

function boundNames(pattern: Pattern): string[] {
  switch (pattern.type) {
    case 'Identifier':
      return [pattern.name]
    case 'ObjectPattern':
      return pattern.properties.flatMap((each) => boundNames(each.type === 'Property' ? each.value : each))
    case 'ArrayPattern':
      return pattern.elements.flatMap((each) => (each ? boundNames(each) : []))
    case 'AssignmentPattern':
      return boundNames(pattern.left)
    case 'RestElement':
      return boundNames(pattern.argument)
    case 'MemberExpression':
      return []
  }
}

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'])
const OWN_SCOPES = new Set([...FUNCTIONS, 'StaticBlock', 'PropertyDefinition'])

/** All nodes below, parents first. */
function nodesOf(node: AnyNode, intoFunctions: boolean): AnyNode[] {
  const found: AnyNode[] = []
  const waiting: AnyNode[] = [node]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    found.push(next)
    if (!intoFunctions && OWN_SCOPES.has(next.type)) continue
    for (const value of Object.values(next).flat()) if (isNode(value)) waiting.push(value)
  }
  return found
}

const isNode = (value: unknown): value is AnyNode =>
  typeof value === 'object' && value !== null && 'type' in value && 'start' in value

const isAwait = (node: AnyNode) =>
  node.type === 'AwaitExpression' ||
  (node.type === 'ForOfStatement' && node.await) ||
  // Ends with the block it is in, so it needs one.
  (node.type === 'VariableDeclaration' && node.kind.endsWith('using'))

const insert = (at: number, text: string): Edit => ({ start: at, end: at, text })

/** The semicolon keeps what was before apart from what comes after. */
function blanked({ start, end }: { start: number; end: number }, source: string): Edit {
  return { start, end, text: `;${blank(source.slice(start + 1, end))}` }
}

const blank = (text: string) => text.replace(/[^\n\r\u2028\u2029]/g, ' ')

/** Without those within others: what is blanked needs no more changes. */
function outermost(edits: Edit[]): Edit[] {
  const ordered = edits
    .map((edit, index) => ({ edit, index }))
    .sort((a, b) => a.edit.start - b.edit.start || a.edit.end - b.edit.end || a.index - b.index)
    .map(({ edit }) => edit)
  let end = 0
  return ordered.filter((edit) => {
    if (edit.start < end) return false
    end = Math.max(end, edit.end)
    return true
  })
}

function keepOnly(source: string, kept: Edit[], edits: Edit[]): string {
  if (kept.length === 0) return ''
  let text = ''
  let at = 0
  const ordered = outermost(edits)
  for (const { start, end } of kept) {
    text += blank(source.slice(at, start)) + rewrite(source, start, end, ordered)
    at = end
  }
  return text
}

function rewrite(source: string, from: number, to: number, edits: Edit[]): string {
  let text = ''
  let at = from
  for (const { start, end, text: replacement } of edits) {
    if (start < from || end > to) continue
    text += source.slice(at, start) + replacement
    at = end
  }
  return text + source.slice(at, to)
}
