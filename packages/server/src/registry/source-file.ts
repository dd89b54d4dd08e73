import { type Document, isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'
import type { Fault } from './fault.ts'

/** Few, since one that names others grows with each. */
const MAX_ALIASES = 20
const MAX_SYNTAX_FAULTS = 20

type Path = readonly PropertyKey[]

/** One YAML file: its value, and where in the text each part of it is. */
export class SourceFile {
  /** Within the registry. */
  readonly path: string
  readonly value: unknown
  /** What keeps the text from being read; the value is then undefined. */
  readonly faults: Fault[]
  readonly #document: Document | undefined
  readonly #lines = new LineCounter()

  constructor(path: string, text: string) {
    this.path = path
    try {
      // YAML 1.2: "no" is text, and only its own types exist.
      this.#document = parseDocument(text, { lineCounter: this.#lines, prettyErrors: false, schema: 'core' })
      this.faults = this.#syntaxFaults(this.#document)
      if (this.faults.length === 0) this.value = this.#document.toJS({ maxAliasCount: MAX_ALIASES })
    } catch (error) {
      // Too many aliases, or nested too deeply.
      this.faults = [this.fault([], `cannot be read: ${error instanceof Error ? error.message : error}`)]
    }
  }

  /** About a part of the value; where that is missing, about what is nearest above it. */
  fault(field: Path, message: string): Fault {
    const { line, col } = this.#lines.linePos(this.#offsetOf(field))
    return { file: this.path, line: line || 1, column: col || 1, field: field.map(String).join('.'), message }
  }

  /** What the file calls itself, even where much else is wrong with it. */
  get name(): string | undefined {
    const { value } = this
    const name = typeof value === 'object' && value !== null && 'name' in value ? value.name : undefined
    return typeof name === 'string' ? name : undefined
  }

  // A tag that nobody knows is only a warning to the parser.
  #syntaxFaults({ errors, warnings }: Document): Fault[] {
    return [...errors, ...warnings].slice(0, MAX_SYNTAX_FAULTS).map(({ pos, message }) => {
      const { line, col } = this.#lines.linePos(pos[0])
      return { file: this.path, line, column: col, field: '', message }
    })
  }

  /** Of an entry, its key. */
  #offsetOf(field: Path): number {
    let node: unknown = this.#document?.contents
    let offset = startOf(node) ?? 0
    for (const part of field) {
      const entry = this.#entryOf(node, part)
      if (entry === undefined) break
      offset = startOf(entry.start) ?? offset
      node = entry.node
    }
    return offset
  }

  #entryOf(parent: unknown, part: PropertyKey): { start: unknown; node: unknown } | undefined {
    const node = isAlias(parent) && this.#document ? parent.resolve(this.#document) : parent
    if (isSeq(node)) {
      const item = node.items[Number(part)]
      return item === undefined ? undefined : { start: item, node: item }
    }
    if (!isMap(node)) return undefined
    const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === String(part))
    return pair && { start: pair.key, node: pair.value }
  }
}

const startOf = (node: unknown) => (node as Node | null | undefined)?.range?.[0]
