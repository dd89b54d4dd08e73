import { isAshError } from '@ash-ai/shared'
import { readText } from '../../files/read-file.ts'
import { writeFile } from '../../files/write-file.ts'
import type { DialectDeps } from '../dialect-deps.ts'

/** Of a configuration or a state. */
export const MAX_AGENT_JSON_BYTES = 1024 * 1024

const NOT_JSON = ['not_a_file', 'path_invalid', 'payload_too_large'] as const

interface AgentFile {
  tenantId: string
  sessionId: string
  path: string
}

export async function writeAgentFile(
  { files }: Pick<DialectDeps, 'files'>,
  { tenantId, sessionId, path }: AgentFile,
  value: unknown,
): Promise<void> {
  const bytes = Buffer.from(JSON.stringify(value))
  await files.change(tenantId, sessionId, (workspace) =>
    writeFile(workspace, path, [bytes], { maxBytes: bytes.length }),
  )
}

/** What can be read as JSON may still be nested too deeply to be written. */
export function isWritable(value: unknown, maxChars = Number.POSITIVE_INFINITY): boolean {
  try {
    return JSON.stringify(value).length <= maxChars
  } catch {
    return false
  }
}

/** Undefined where there is none. What runs in the session can write there as well: null for what is no JSON object. */
export async function readAgentFile(
  { files }: Pick<DialectDeps, 'files'>,
  { tenantId, sessionId, path }: AgentFile,
): Promise<object | null | undefined> {
  try {
    const value: unknown = JSON.parse(
      await readText(await files.open(tenantId, sessionId), path, MAX_AGENT_JSON_BYTES),
    )
    return typeof value === 'object' && !Array.isArray(value) && isWritable(value) ? value : null
  } catch (error) {
    if (isAshError(error, 'file_not_found') || isAshError(error, 'no_checkpoint')) return undefined
    if (error instanceof SyntaxError || NOT_JSON.some((code) => isAshError(error, code))) return null
    throw error
  }
}
