import { readFile } from 'node:fs/promises'
import { extname } from 'node:path'
import { text } from 'node:stream/consumers'
import { LANGUAGES, type Language } from '@ash-ai/sdk'
import { CliError, EXIT } from './failure.ts'

export interface RunSource {
  text: string
  /** Undefined where nothing says so: the server then takes that of the template or the session. */
  language: Language | undefined
}

const LANGUAGE_OF: Record<string, Language> = {
  '.py': 'python',
  '.js': 'javascript',
  '.mjs': 'javascript',
  '.cjs': 'javascript',
  '.sh': 'shell',
  '.bash': 'shell',
}

/** The code to run: of a file, of stdin (`-`), or as it was given. */
export async function readRunSource(
  file: string | undefined,
  code: string | undefined,
  language: Language | undefined,
): Promise<RunSource> {
  if ((file === undefined) === (code === undefined))
    throw usage(
      file === undefined ? 'There is nothing to run' : 'There are both a file and --code',
      'Name a file, "-" for stdin, or give the code with -c',
    )
  const source = code ?? (await readText(file ?? '-'))
  if (source.trim() === '') throw usage('The code is empty', 'Give a file that has some, or -c <code>')
  return { text: source, language: language ?? languageOf(file) }
}

/** The event of a handler, given as text or in a file. */
export async function readEvent(
  event: string | undefined,
  file: string | undefined,
): Promise<Record<string, unknown> | undefined> {
  if (event !== undefined && file !== undefined)
    throw usage('There are both --event and --event-file', 'Give one of them')
  if (event === undefined && file === undefined) return undefined
  return parseEvent(event ?? (await readText(file ?? '-')), file === undefined ? '--event' : file)
}

function languageOf(file: string | undefined): Language | undefined {
  if (file === undefined || file === '-') return undefined
  const language = LANGUAGE_OF[extname(file).toLowerCase()]
  if (language !== undefined) return language
  throw usage(`The name of ${file} does not tell its language`, `Add --language: ${LANGUAGES.join(', ')}`)
}

async function readText(file: string): Promise<string> {
  if (file === '-') return text(process.stdin)
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR')
      throw usage(`There is no file ${file}`, 'Name one that is there, or "-" for stdin')
    if (code === 'EISDIR') throw usage(`${file} is a folder`, 'Name a file in it')
    throw error
  }
}

function parseEvent(json: string, where: string): Record<string, unknown> {
  const next = `Give a JSON object, such as '{"name": "Ada"}'`
  let event: unknown
  try {
    event = JSON.parse(json)
  } catch (error) {
    throw usage(`${where} is not JSON: ${(error as Error).message}`, next)
  }
  if (typeof event === 'object' && event !== null && !Array.isArray(event))
    return event as Record<string, unknown>
  throw usage(`${where} is no JSON object`, next)
}

const usage = (what: string, next: string) => new CliError(EXIT.usage, what, next)
