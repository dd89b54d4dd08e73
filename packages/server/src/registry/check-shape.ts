import { z } from 'zod'
import { didYouMean, type Fault } from './fault.ts'
import type { SourceFile } from './source-file.ts'

type Issue = z.core.$ZodIssue
type Path = PropertyKey[]

/** A file, and its value as its kind has it. */
export interface Checked<Item> {
  file: SourceFile
  /** Undefined where the file has faults. */
  item: Item | undefined
  /** Those of its fields that have none. */
  part: Partial<Item>
}

/** Every fault is added to `faults`, with its place. */
export function checkShape<Shape extends z.ZodRawShape>(
  file: SourceFile,
  schema: z.ZodObject<Shape>,
  faults: Fault[],
): Checked<z.infer<z.ZodObject<Shape>>> {
  if (file.faults.length > 0) return { file, item: undefined, part: {} }
  const result = schema.safeParse(file.value ?? {}, { error: describe })
  if (result.success) return { file, item: result.data, part: result.data }
  const found = result.error.issues.flatMap((issue) => toFaults(file, schema, issue, []))
  // What has the wrong type may also have the wrong length: the first says it.
  const first = new Map(found.toReversed().map((fault) => [fault.field, fault]))
  faults.push(...first.values())
  return { file, item: undefined, part: rightPart(file.value, schema) }
}

function rightPart<Shape extends z.ZodRawShape>(
  value: unknown,
  { shape }: z.ZodObject<Shape>,
): Partial<z.infer<z.ZodObject<Shape>>> {
  const fields = Object.entries(typeof value === 'object' && value !== null ? value : {})
  const right = fields.flatMap(([name, given]) => {
    const result = Object.hasOwn(shape, name) ? z.safeParse(shape[name] ?? z.never(), given) : undefined
    return result?.success ? [[name, result.data]] : []
  })
  return Object.fromEntries(right)
}

function toFaults(file: SourceFile, schema: z.ZodType, issue: Issue, above: Path): Fault[] {
  const path = [...above, ...issue.path]
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => file.fault([...path, key], unknownKey(key, keysAt(schema, path))))
  if (issue.code === 'invalid_key')
    return [file.fault(path, `the name ${issue.issues[0]?.message ?? 'is not allowed'}`)]
  const meant = issue.code === 'invalid_union' ? issue.errors.find(isNear) : undefined
  if (meant) return meant.flatMap((inner) => toFaults(file, schema, inner, path))
  return [file.fault(path, issue.message)]
}

/** Of several forms, the one that the value has: what is wrong is inside. */
const isNear = (issues: Issue[]) => issues.length > 0 && issues.every(({ path }) => path.length > 0)

function unknownKey(key: string, known: string[]): string {
  return `is not known here${didYouMean(key, known) || (known.length > 0 ? `; there are ${known.join(', ')}` : '')}`
}

/** The keys that the object at this place may have. */
function keysAt(schema: z.ZodType, path: Path): string[] {
  const inner = plain(schema)
  if (!(inner instanceof z.ZodObject) && !(inner instanceof z.ZodArray)) return []
  const [part, ...rest] = path
  if (inner instanceof z.ZodArray) return part === undefined ? [] : keysAt(inner.element as z.ZodType, rest)
  if (part === undefined) return Object.keys(inner.shape)
  const field: unknown = inner.shape[String(part)]
  return field instanceof z.ZodType ? keysAt(field, rest) : []
}

function plain(schema: z.ZodType): z.ZodType {
  if (schema instanceof z.ZodOptional) return plain(schema.unwrap() as z.ZodType)
  return schema instanceof z.ZodPipe ? plain(schema.in as z.ZodType) : schema
}

/** In the words of the rest, where a field says nothing itself. */
const describe: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === undefined
        ? 'is missing'
        : `must be ${KIND_NAMES[issue.expected] ?? issue.expected}, not ${kindOf(issue.input)}`
    case 'invalid_value':
      return `must be ${issue.values.map((value) => `"${String(value)}"`).join(' or ')}`
    case 'too_small':
      return `must ${verbFor(issue.origin)} at least ${issue.minimum}${unitFor(issue.origin)}`
    case 'too_big':
      return `must ${verbFor(issue.origin)} at most ${issue.maximum}${unitFor(issue.origin)}`
    case 'invalid_union':
      return 'has none of the forms that are known'
    default:
      return undefined
  }
}

const KIND_NAMES: Record<string, string> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'a group of fields',
  record: 'a group of fields',
  array: 'a list',
}

function kindOf(value: unknown): string {
  if (value === null) return 'empty'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'number') return `${value}`
  return typeof value === 'boolean' ? `${value}` : (KIND_NAMES[typeof value] ?? typeof value)
}

const verbFor = (origin: string) => (origin === 'number' || origin === 'int' ? 'be' : 'have')
const UNITS: Record<string, string> = { string: ' characters', array: ' entries' }
const unitFor = (origin: string) => UNITS[origin] ?? ''
