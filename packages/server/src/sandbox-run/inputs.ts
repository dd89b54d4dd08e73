import { readFileSync, statSync } from 'node:fs'
import { extname } from 'node:path'
import type { Language } from '@ash-ai/shared'
import { EXIT, RunStop } from './exit-codes.ts'
import type { Options, Source } from './options.ts'
import { parseObject } from './settings.ts'

const LANGUAGE_OF: Record<string, Language> = { '.py': 'python', '.js': 'javascript', '.mjs': 'javascript' }
const MAX_CODE_BYTES = 1024 * 1024
const MAX_EVENT_BYTES = 10 * 1024 * 1024

/** What is run, and with what. */
export interface Inputs {
  language: Language
  code: string
  event: Record<string, unknown>
  context: Record<string, unknown>
}

/** Throws `RunStop` for what cannot be read. */
export async function readInputs({ script, event, context }: Options): Promise<Inputs> {
  const language = LANGUAGE_OF[extname(script)]
  if (language === undefined)
    throw new RunStop(EXIT.unreadable, `${script}: the name of a handler's file ends with .py, .js or .mjs`)
  return {
    language,
    code: readText(script, MAX_CODE_BYTES),
    event: await readObject('The event', event),
    context: await readObject('The context', context),
  }
}

async function readObject(what: string, source: Source | undefined): Promise<Record<string, unknown>> {
  if (source === undefined) return {}
  if ('text' in source) return parseObject(what, source.text)
  const { file } = source
  const text = file === '-' ? await readStdin() : readText(file, MAX_EVENT_BYTES)
  return parseObject(`${what} in ${file}`, text)
}

/** At once: these are small, and nothing else is under way. */
function readText(path: string, maxBytes: number): string {
  try {
    if (statSync(path).size > maxBytes) throw tooLarge(path, maxBytes)
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (error instanceof RunStop) throw error
    const reason = error instanceof Error ? error.message : ''
    throw new RunStop(EXIT.unreadable, `Cannot read ${path}: ${reason}`, { cause: error })
  }
}

async function readStdin(): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of process.stdin) {
    bytes += chunk.length
    if (bytes > MAX_EVENT_BYTES) throw tooLarge('The standard input', MAX_EVENT_BYTES)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

const tooLarge = (what: string, maxBytes: number) =>
  new RunStop(EXIT.unreadable, `${what} has more than ${maxBytes} bytes`)
